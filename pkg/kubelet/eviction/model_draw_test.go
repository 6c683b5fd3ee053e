package eviction

import (
	"fmt"
	"math"
	"math/rand"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// modelTraits say what a run is about. Each makes something happen that other runs do not have.
type modelTraits struct {
	// plain: pods do not grow and no kill fails, so that the actions of stock's manager can be compared.
	plain bool
	// disk: the image disk fills up. limits: pods break limits of their own.
	disk, limits bool
	// clockSteps: the wall clock is set. readerFails: counters cannot be read. slowSummary: a summary takes seconds.
	// lagging: it has the node's memory of a while ago.
	clockSteps, readerFails, slowSummary, lagging bool
	// soft: there is a soft memory threshold. failing: some kills fail or never end.
	soft, failing bool
	// deletions and arrivals of pods.
	deletions, arrivals bool
	// lasting: pods that grow do so from the beginning on. crowd: many small pods stand before a few that grow from the
	// beginning on, all of them within their requests.
	lasting, crowd bool
}

// modelDraw makes one node and what happens to it.
type modelDraw struct {
	*rand.Rand
	node   *modelNode
	traits modelTraits
}

// newModelNode is the node of a seed. It must be called inside a bubble.
func newModelNode(seed int64) (*modelNode, modelTraits) {
	now := time.Now()
	n := &modelNode{began: now, at: now, byUID: map[types.UID]*modelPod{}}
	d := &modelDraw{Rand: rand.New(rand.NewSource(seed)), node: n}
	d.drawTraits()
	d.drawSettings()
	for i := range d.count() {
		d.addPod(i)
	}
	d.drawDisk()
	d.fill()
	if d.traits.crowd {
		d.drawLeaks()
	}
	d.drawEvents()
	d.drawDeletions(seed)
	d.drawRequests(seed)
	d.drawStop(seed)
	n.trace = append(n.trace, d.String())
	n.begin()
	n.sources.lagging = d.traits.lagging
	n.sources.next = now.Add(time.Duration(1 + d.Int63n(int64(modelSampling))))
	return n, d.traits
}

// one is true in one of so many cases.
func (d *modelDraw) one(of int) bool { return d.Intn(of) == 0 }

func (d *modelDraw) seconds(most int) time.Duration {
	return time.Duration(d.Intn(1000*most)) * time.Millisecond
}

func (d *modelDraw) drawTraits() {
	t := &d.traits
	if t.plain = d.one(5); t.plain {
		return
	}
	t.disk, t.readerFails, t.slowSummary, t.limits = d.one(6), d.one(7), d.one(7), d.one(8)
	t.soft, t.deletions, t.arrivals, t.lagging = d.one(8), d.one(8), d.one(8), d.one(6)
	t.failing, t.lasting, t.crowd = d.one(5), d.one(2), d.one(4)
	t.clockSteps = d.one(15) || (t.disk && d.one(2))
}

func (d *modelDraw) drawSettings() {
	const memory = "memory.available"
	s, n := &d.node.settings, d.node
	c := &s.config
	c.Hard, c.MinimumReclaim = map[string]string{}, map[string]string{}
	c.Soft, c.SoftGracePeriods = map[string]string{}, map[string]string{}
	bytes := func(f float64) string { return fmt.Sprint(int64(f)) }
	s.timing = new(settings.Kubelet).Rules(new(settings.DefaultOptions())).Timing
	s.hard = float64([]int64{100 * mi, 100 * mi, 500 * mi, gi, 2 * gi}[d.Intn(5)])
	c.Hard[memory] = bytes(s.hard)
	if d.one(5) && !d.traits.plain {
		s.minReclaim = float64(d.Int63n(gi))
		c.MinimumReclaim[memory] = bytes(s.minReclaim)
	}
	if d.traits.soft {
		s.soft = s.hard + float64(d.Int63n(gi)+mi)
		c.Soft[memory], c.SoftGracePeriods[memory] = bytes(s.soft), fmt.Sprintf("%ds", 1+d.Intn(30))
	}
	if d.traits.disk {
		s.images = float64((1 + d.Int63n(10)) * gi)
		c.Hard["imagefs.available"] = bytes(s.images)
	}
	n.capacity = float64(int64(16<<d.Intn(3)) * gi)
	n.podsLimit = n.capacity
	if s.allocatable = d.one(5) && !d.traits.soft; s.allocatable {
		c.AllocatableEnforced = []string{"pods"}
		n.podsLimit -= float64(gi + d.Int63n(2*gi))
	}
}

func (d *modelDraw) count() int {
	switch {
	case d.traits.crowd:
		return 12 + d.Intn(24)
	case d.one(12):
		return 40 + d.Intn(30)
	}
	return 2 + d.Intn(18)
}

// size is that of a pod: mostly small.
func (d *modelDraw) size() float64 {
	var size int64
	switch n := d.Intn(8); {
	case d.traits.crowd:
		size = 15*mi + d.Int63n(60*mi)
	case n == 0:
		size = gi + d.Int63n(6*gi)
	case n <= 3:
		size = 200*mi + d.Int63n(gi)
	default:
		size = 10*mi + d.Int63n(150*mi)
	}
	room := d.node.podsLimit - 3*float64(gi) - d.node.podsUsed()
	return max(float64(mi), min(float64(size), room/2))
}

// newModelPod is a pod that uses nothing and ends in two seconds.
func newModelPod(name string) *modelPod {
	p := &modelPod{takes: 2 * time.Second, changed: make(chan struct{})}
	p.object = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)}}
	p.object.Spec = v1.PodSpec{Containers: []v1.Container{{Name: "c"}}, Priority: new(int32(0))}
	return p
}

// makeStatic makes a critical pod of it.
func (p *modelPod) makeStatic() {
	p.critical = true
	p.object.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
}

// requests sets the pod's memory request.
func (p *modelPod) requests(amount float64) {
	p.request = amount
	if amount > 0 {
		memoryRequest(int64(amount))(p.object)
	}
}

func (n *modelNode) adopt(p *modelPod) { n.pods, n.byUID[p.object.UID] = append(n.pods, p), p }

func (d *modelDraw) addPod(i int) *modelPod {
	p := newModelPod(fmt.Sprintf("pod-%02d", i))
	*p.object.Spec.Priority = int32(d.Intn(4))
	if d.one(16) {
		p.makeStatic()
	} else if p.critical = d.one(16); p.critical {
		*p.object.Spec.Priority = 2_000_000_000
	}
	size := d.size()
	p.memory[anonymous] = size
	switch d.Intn(7) {
	case 0:
		p.memory[anonymous], p.memory[memoryVolume], p.kind = size/2, size/2, modelKind(d.Intn(2))
	case 1:
		p.memory[anonymous], p.memory[pageCache] = size/2, size/2
		if d.one(3) {
			p.kind = pageCache
		}
	}
	p.cacheLingers = d.seconds(60) - 15*time.Second
	d.drawRequest(p, size)
	d.drawEnd(p)
	d.drawDiskUse(p)
	d.node.adopt(p)
	return p
}

func (d *modelDraw) drawRequest(p *modelPod, size float64) {
	switch {
	case d.traits.crowd || d.one(2):
		p.requests(size + float64(d.Int63n(4*gi)))
	case d.one(5):
		p.requests(0)
	default:
		p.requests(max(1, size*d.Float64()))
	}
	if d.traits.soft && d.one(2) {
		p.object.Spec.TerminationGracePeriodSeconds = new(int64(2 + d.Intn(60)))
	}
}

// drawEnd draws how the pod ends.
func (d *modelDraw) drawEnd(p *modelPod) {
	p.takes = time.Second + d.seconds(1)
	switch n := d.Intn(12); {
	case n == 0:
		p.takes = 3*time.Second + d.seconds(8)
	case n <= 2:
		p.takes = 11*time.Second + d.seconds(17)
	case n == 3 && d.traits.failing:
		p.takes = 24 * time.Hour
	case n <= 5 && d.traits.failing:
		p.failures, p.fails = 1+d.Intn(2), d.seconds(9)
	}
	p.ending, p.volumes = d.seconds(60), d.seconds(3)
	if d.one(6) {
		p.volumes = 5*time.Second + d.seconds(120)
	}
}

func (d *modelDraw) drawDiskUse(p *modelPod) {
	if !d.traits.disk && !d.traits.limits {
		return
	}
	p.disk = float64(d.Int63n(3 * gi))
	if d.traits.limits && d.one(3) {
		p.limit = p.disk + float64(d.Int63n(gi))
		p.object.Spec.Containers[0].Resources.Limits = v1.ResourceList{
			v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(p.limit), resource.BinarySI),
		}
	}
}

func (d *modelDraw) drawDisk() {
	if !d.traits.disk {
		return
	}
	n := d.node
	n.images = &modelDisk{capacity: float64(200 * gi), takes: d.seconds(4), measures: d.one(2)}
	if d.one(3) {
		n.images.reclaimable = float64(d.Int63n(8 * gi))
	}
	n.images.other = n.imagesFree() - n.settings.images - float64(d.Int63n(8*gi))
}

// fill gives the system so much that little is left, mostly.
func (d *modelDraw) fill() {
	n := d.node
	left := n.settings.hard + float64(10*mi+d.Int63n(int64(n.settings.hard)))
	if d.one(4) {
		left += float64(d.Int63n(4 * gi))
	}
	if d.traits.disk && d.one(2) {
		left += float64(4 * gi)
	}
	n.system = max(0, n.capacity-n.podsUsed()-left)
	if n.settings.allocatable && d.one(2) {
		n.podsLimit = min(n.podsLimit, n.podsUsed()+left)
	}
}

// drawLeaks lets one to three pods grow from the beginning on, so that memory is short in a minute: then their rates
// are known. They are the last to go, unless one is critical. The last of them may be deleted before.
func (d *modelDraw) drawLeaks() {
	n, sum := d.node, 0.0
	for range 1 + d.Intn(3) {
		p := d.addPod(len(n.pods))
		rate := d.rate()
		sum += rate
		p.kind, p.cacheLingers = anonymous, 0
		p.requests(float64(100 * gi))
		if !p.critical {
			*p.object.Spec.Priority = 4
		}
		what := fmt.Sprintf("%s grows by %s/s", p.name(), mib(rate))
		d.event(n.began, what, func(n *modelNode) { n.podGrows(p, rate) })
	}
	lasts := 46 + 20*d.Float64()
	left := n.settings.hard + sum*lasts
	n.system = max(0, min(n.system, n.capacity-n.podsUsed()-left))
	n.capacity = max(n.capacity, n.system+n.podsUsed()+left)
	n.podsLimit = n.capacity
	if d.one(3) {
		short := n.began.Add(time.Duration(lasts * float64(time.Second)))
		d.deletes(n.pods[len(n.pods)-1], short.Add(4*time.Second-d.seconds(20)), 12)
	}
}

// rate is from 1 to 500 MiB/s; every power of two is as likely as any other.
func (d *modelDraw) rate() float64 { return float64(mi) * math.Exp(d.Float64()*math.Log(500)) }

// String describes the node at its beginning.
func (d *modelDraw) String() string {
	n := d.node
	text := fmt.Sprintf("traits %+v\nthresholds %+v\ncapacity %s, of pods %s, system %s",
		d.traits, n.settings.config, mib(n.capacity), mib(n.podsLimit), mib(n.system))
	if n.images != nil {
		text += fmt.Sprintf(", image disk %+v", *n.images)
	}
	for _, p := range n.pods {
		text += "\n  " + p.String()
	}
	return text
}

func (p *modelPod) String() string {
	return fmt.Sprintf("%s priority %d critical=%v uses %s + %s in volumes + %s cached, request %s, disk %s (limit %s)",
		p.name(), *p.object.Spec.Priority, p.critical, mib(p.memory[anonymous]), mib(p.memory[memoryVolume]),
		mib(p.memory[pageCache]), mib(p.request), mib(p.disk), mib(p.limit)) +
		fmt.Sprintf("; ends after %v + %v of its grace, volumes hang %v, cache %v, fails %d times after %v",
			p.takes, p.ending, p.volumes, p.cacheLingers, p.failures, p.fails)
}
