package podlifecycle

import "slices"

// nameOrder lets static pods of one full name start one after the other, in the order in which they were first seen. A
// pod holds its name from its start until it is finished or forgotten.
type nameOrder struct {
	holder  map[string]UID
	waiting map[string][]UID
}

func newNameOrder() nameOrder {
	return nameOrder{holder: map[string]UID{}, waiting: map[string][]UID{}}
}

// join puts a pod at the end of the queue for its name.
func (o nameOrder) join(name string, uid UID) {
	o.waiting[name] = append(o.waiting[name], uid)
}

// claim gives the name to a pod if it is free and the pod is first in the queue. It is true also when the pod holds it
// already.
func (o nameOrder) claim(name string, uid UID) bool {
	if holder, held := o.holder[name]; held {
		return holder == uid
	}
	if queue := o.waiting[name]; len(queue) > 0 && queue[0] != uid {
		return false
	}
	o.unqueue(name, uid)
	o.holder[name] = uid
	return true
}

// leave takes a pod out of the queue and its name from it. It returns the pod whose turn it is now, if that may have
// changed.
func (o nameOrder) leave(name string, uid UID) (next UID, ok bool) {
	o.unqueue(name, uid)
	if o.holder[name] == uid {
		delete(o.holder, name)
	}
	if _, held := o.holder[name]; held || len(o.waiting[name]) == 0 {
		return "", false
	}
	return o.waiting[name][0], true
}

func (o nameOrder) unqueue(name string, uid UID) {
	queue := slices.DeleteFunc(o.waiting[name], func(waiting UID) bool { return waiting == uid })
	if len(queue) == 0 {
		delete(o.waiting, name)
		return
	}
	o.waiting[name] = queue
}
