package publish

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The pace, whatever the changes: no write without a change, none sooner than a second after the first change; in any
// time at most five writes and one per sustained; and none later than that needs.
func TestPaceAtRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sustained := time.Duration(rapid.IntRange(1, 60).Draw(t, "sustained")) * time.Second
		p := pace{sustained: sustained}
		now := time.Unix(1000, 0)
		var writes []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "wait")) * time.Millisecond)
			changed := now
			p.change(now)
			// More changes until the write change nothing.
			due := p.due(false)
			p.change(now.Add(due.Sub(now) / 2))
			if again := p.due(false); !again.Equal(due) {
				t.Fatalf("a second change moves the write from %v to %v", due, again)
			}
			earliest := changed.Add(changeWindow)
			if due.Before(earliest) {
				t.Fatalf("due %v after the change", due.Sub(changed))
			}
			if due.After(earliest) && allowed(writes, due.Add(-time.Millisecond), sustained) {
				t.Fatalf("due %v after the change, though it could be sooner", due.Sub(changed))
			}
			if !allowed(writes, due, sustained) {
				t.Fatalf("too many writes: %v, and %v", writes, due)
			}
			now = due
			p.written(now, false)
			writes = append(writes, now)
		}
	})
}

// allowed reports, the slow way, whether there may be a write: for each earlier write, that and those since are at most
// five and one per sustained.
func allowed(writes []time.Time, at time.Time, sustained time.Duration) bool {
	for i, first := range writes {
		if count := len(writes) - i + 1; count > burst+int(at.Sub(first)/sustained) {
			return false
		}
	}
	return true
}

func TestPace(t *testing.T) {
	begin := time.Unix(0, 0)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	p := pace{sustained: 10 * time.Second}
	var got []time.Duration
	now := begin
	for range 8 {
		p.change(now)
		now = p.due(false)
		p.written(now, false)
		got = append(got, now.Sub(begin)/time.Second)
	}
	for i, want := range []time.Duration{1, 2, 3, 4, 5, 11, 21, 31} {
		if got[i] != want {
			t.Errorf("write %d after %d s, want %d", i+1, got[i], want)
		}
	}
	// A creation does not wait for its turn, but for the creation before it.
	p.change(now)
	if due := p.due(true); !due.Equal(now.Add(time.Second)) {
		t.Errorf("created after %v", due.Sub(now))
	}
	p.written(now.Add(time.Second), true)
	p.change(now.Add(time.Second))
	if due := p.due(true); !due.Equal(now.Add(6 * time.Second)) {
		t.Errorf("created again after %v", due.Sub(now))
	}
	// Another sustained is for the writes that were made as well.
	q := pace{sustained: time.Minute}
	for range 5 {
		q.written(begin, false)
	}
	q.change(begin)
	if due := q.due(false); !due.Equal(at(time.Minute)) {
		t.Errorf("due after %v", due.Sub(begin))
	}
	q.setSustained(10*time.Second, begin)
	if due := q.due(false); !due.Equal(at(10 * time.Second)) {
		t.Errorf("due after %v", due.Sub(begin))
	}
}
