package eviction

import (
	"fmt"
	"slices"
	"time"
)

func (d *modelDraw) event(at time.Time, what string, do func(n *modelNode)) {
	d.node.script = append(d.node.script, modelEvent{at, what, do})
}

// at is a moment of the first minute or so.
func (d *modelDraw) at() time.Time { return d.node.began.Add(time.Second + d.seconds(50)) }

// drawEvents draws what happens to the node.
func (d *modelDraw) drawEvents() {
	t := &d.traits
	for range 1 + d.Intn(3) {
		if !t.crowd || d.one(2) {
			d.systemGrows()
		}
	}
	if t.plain {
		return
	}
	for range d.Intn(4) {
		if !t.crowd {
			d.podGrows()
		}
	}
	draw := func(holds bool, do func()) {
		if holds {
			do()
		}
	}
	draw(t.disk, d.diskFills)
	draw(t.clockSteps, d.clockSteps)
	draw(t.clockSteps && d.one(2), d.clockSteps)
	draw(t.readerFails, d.readerFails)
	draw(t.slowSummary, d.summaryIsSlow)
	draw(t.limits, d.breaksLimit)
	draw(t.arrivals, d.arrives)
	draw(t.deletions, func() { d.deletes(d.node.pods[d.Intn(len(d.node.pods))], d.at(), 60) })
}

// systemGrows lets the system take memory for a while, and maybe give it back.
func (d *modelDraw) systemGrows() {
	at, rate := d.at(), d.rate()
	amount := d.Float64() * (1.5*d.node.settings.hard + float64(300*mi))
	lasts := min(time.Duration(amount/rate*float64(time.Second)), 2*time.Minute)
	change := func(at time.Time, what string, rate float64) {
		d.event(at, what, func(n *modelNode) { n.systemGrows(rate) })
	}
	change(at, fmt.Sprintf("the system takes %s/s for %v", mib(rate), lasts), rate)
	change(at.Add(lasts), "the system takes no more", 0)
	if d.one(4) && !d.traits.plain {
		back := at.Add(lasts + d.seconds(40))
		change(back, "the system gives back", -rate)
		change(back.Add(lasts), "the system gives back no more", 0)
	}
}

func (d *modelDraw) podGrows() {
	n := d.node
	p := n.pods[d.Intn(len(n.pods))]
	at, rate, lasts := d.at(), d.rate(), d.seconds(40)
	if d.traits.lasting {
		// From the beginning on, and often at a rate that leaves a minute until memory is short.
		at, lasts = n.began, time.Hour
		if left := n.available() - n.settings.hard; d.one(2) {
			rate = min(rate, max(float64(mi), left/(45+30*d.Float64())))
		}
	}
	what := fmt.Sprintf("%s grows by %s/s for %v", p.name(), mib(rate), lasts)
	d.event(at, what, func(n *modelNode) { n.podGrows(p, rate) })
	d.event(at.Add(lasts), p.name()+" grows no more", func(n *modelNode) { n.podGrows(p, 0) })
}

func (d *modelDraw) diskFills() {
	n, at, rate := d.node, d.at(), d.rate()/4
	if d.one(2) {
		p := n.pods[d.Intn(len(n.pods))]
		d.event(at, fmt.Sprintf("%s writes %s/s", p.name(), mib(rate)), func(*modelNode) {
			if !p.dead() {
				p.diskRate = rate
			}
		})
		return
	}
	lasts := time.Duration(d.Float64() * 9 * float64(gi) / rate * float64(time.Second))
	d.event(at, fmt.Sprintf("others write %s/s to the image disk for %v", mib(rate), lasts),
		func(n *modelNode) { n.images.otherRate = rate })
	d.event(at.Add(lasts), "others write no more to the image disk", func(n *modelNode) { n.images.otherRate = 0 })
}

func (d *modelDraw) clockSteps() {
	step := []time.Duration{time.Hour, time.Minute, 7 * time.Second}[d.Intn(3)]
	if d.one(2) {
		step = -step
	}
	d.event(d.at(), fmt.Sprintf("the wall clock steps by %v", step), func(n *modelNode) { n.steps(step) })
}

func (d *modelDraw) readerFails() {
	at, lasts := d.at(), d.seconds(30)
	if d.one(2) {
		d.event(at, "reading the counters fails once", func(n *modelNode) { n.sources.failures = 1 })
		return
	}
	d.event(at, fmt.Sprintf("reading the counters fails for %v", lasts), func(n *modelNode) {
		n.sources.failsUntil = n.at.Add(lasts)
	})
}

func (d *modelDraw) summaryIsSlow() {
	at, takes := d.at(), d.seconds(13)
	d.event(at, fmt.Sprintf("a summary takes %v", takes), func(n *modelNode) { n.sources.takes = takes })
	d.event(at.Add(d.seconds(60)), "a summary takes no time", func(n *modelNode) { n.sources.takes = 0 })
}

// breaksLimit lets a pod with a limit on its writable layer break it.
func (d *modelDraw) breaksLimit() {
	i := slices.IndexFunc(d.node.pods, func(p *modelPod) bool { return p.limit > 0 && !p.critical })
	if i < 0 {
		return
	}
	p := d.node.pods[i]
	d.event(d.at(), p.name()+" breaks its own limit", func(*modelNode) {
		if !p.dead() {
			p.disk = p.limit + float64(gi)
		}
	})
}

// deletes deletes a pod with up to so many seconds of grace.
func (d *modelDraw) deletes(p *modelPod, at time.Time, most int) {
	grace := time.Duration(d.Intn(most)) * time.Second
	what := fmt.Sprintf("%s is deleted with %v of grace", p.name(), grace)
	d.event(at, what, func(n *modelNode) { n.deletes(p, grace) })
}

// arrives lets another pod come if there is room for it.
func (d *modelDraw) arrives() {
	number := len(d.node.pods)
	p := d.addPod(number)
	d.node.pods = d.node.pods[:number]
	d.event(d.at(), p.name()+" arrives", func(n *modelNode) {
		if p.uses() < n.available()-n.settings.hard-float64(200*mi) {
			n.pods = append(n.pods, p)
		}
	})
}
