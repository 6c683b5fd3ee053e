package eviction

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Alarm wakes the loop up, at a time or because something was sent to it. Set, Wait and Stop are called by one
// goroutine, Ring by any one at any time.
type Alarm interface {
	// Set sets the time, so long from now.
	Set(d time.Duration)
	// Wait returns when the time has come, once, and at once after a Ring since the last Set. It may return for no reason.
	Wait()
	// Ring makes Wait return. A later Set may take that back.
	Ring()
	// Stop frees what the alarm uses. Neither Set nor Wait is called after it.
	Stop()
}

// clockAlarm is an Alarm of a clock.
type clockAlarm struct {
	timer clock.Timer
	rung  chan struct{}
}

func newClockAlarm(c clock.Clock) Alarm {
	return clockAlarm{timer: c.NewTimer(0), rung: make(chan struct{}, 1)}
}

func (a clockAlarm) Set(d time.Duration) { a.timer.Reset(d) }
func (a clockAlarm) Ring()               { signal(a.rung) }
func (a clockAlarm) Stop()               { a.timer.Stop() }

func (a clockAlarm) Wait() {
	select {
	case <-a.timer.C():
	case <-a.rung:
	}
}

// ring wakes the loop up after something was sent to it; before it runs that is not necessary.
func (m *Manager) ring() {
	if alarm := m.alarm.Load(); alarm != nil {
		(*alarm).Ring()
	}
}

// startAlarm returns the alarm of the loop, which also rings when ctx ends.
func (m *Manager) startAlarm(ctx context.Context) (alarm Alarm, stop func()) {
	if m.config.NewAlarm != nil {
		alarm = m.config.NewAlarm()
	}
	if alarm == nil {
		alarm = newClockAlarm(m.config.Clock)
	}
	m.alarm.Store(&alarm)
	forget := context.AfterFunc(ctx, alarm.Ring)
	return alarm, func() {
		forget()
		alarm.Stop()
	}
}
