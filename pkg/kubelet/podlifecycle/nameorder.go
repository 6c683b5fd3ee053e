package podlifecycle

import "slices"

// nameOrder is the order in which static pods of one full name start: that of their first events. A pod holds its name
// from its start until it is finished or removed.
type nameOrder struct {
	holder  map[string]UID
	waiting map[string][]UID
}

func newNameOrder() nameOrder {
	return nameOrder{holder: map[string]UID{}, waiting: map[string][]UID{}}
}

// enqueue puts a pod at the end of the queue for its name.
func (o nameOrder) enqueue(name string, uid UID) {
	o.waiting[name] = append(o.waiting[name], uid)
}

// claim makes the pod the holder of the name if the name is free and the pod is first in the queue. It returns true
// also when the pod is the holder already.
func (o nameOrder) claim(name string, uid UID) bool {
	if holder, held := o.holder[name]; held {
		return holder == uid
	}
	if queue := o.waiting[name]; len(queue) > 0 && queue[0] != uid {
		return false
	}
	o.dequeue(name, uid)
	o.holder[name] = uid
	return true
}

// release removes a pod from the queue, and as the holder of the name. It returns the first pod of the queue if the
// name is free.
func (o nameOrder) release(name string, uid UID) (next UID, ok bool) {
	o.dequeue(name, uid)
	if o.holder[name] == uid {
		delete(o.holder, name)
	}
	if _, held := o.holder[name]; held || len(o.waiting[name]) == 0 {
		return "", false
	}
	return o.waiting[name][0], true
}

func (o nameOrder) dequeue(name string, uid UID) {
	queue := slices.DeleteFunc(o.waiting[name], func(waiting UID) bool { return waiting == uid })
	if len(queue) == 0 {
		delete(o.waiting, name)
		return
	}
	o.waiting[name] = queue
}
