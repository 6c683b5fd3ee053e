package arbiter

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// class says how a candidate competes for one of the places in flight.
type class uint8

// The classes, in the order in which they get places.
const (
	forcedWaiting class = iota
	forcedFresh
	softWaiting
	softFresh
	// lapsed candidates gave their places back. Stale ones are requested, and either were blocked since then, or have been
	// requested for servePatience.
	lapsed
	stale
)

// servePatience is for how long a request that is not served keeps its place from others. Decisions serve a request
// within seconds, unless the pod is terminating for another reason or opted out.
const servePatience = 30 * time.Second

// contender is a candidate that is not in flight. wait is since when it is or was requested; its time is zero if that
// does not count.
type contender struct {
	*candidate
	class class
	wait  Wait
}

// offered is the part of the candidates that is requested now: those that were before, and in each round at most as
// many more as the burst allows, of which one at most is not forced. No more are requested than may be in flight. One
// that is blocked, or is not served for servePatience, gives its place back when another candidate needs it (E12). A
// pod that is in flight is requested again only by force, with less grace.
func (s *settling) offered(list []candidate) (requests []snapshot.Request) {
	places := s.rules.MaxInFlight
	for _, pod := range s.pods {
		if pod.InFlight && !pod.Overdue {
			places--
		}
	}
	accepted := map[types.UID]bool{}
	s.next.Waits = nil
	for _, c := range s.contenders(list) {
		accept := places > 0 && s.accept(&c)
		if accept {
			accepted[c.UID] = true
			places--
		}
		s.wait(&c, accept)
	}
	slices.SortFunc(s.next.Waits, func(a, b Wait) int { return cmp.Compare(a.UID, b.UID) })
	for i := range list {
		c := &list[i]
		hastens := c.pod.InFlight && c.Forced && c.GraceSeconds != nil
		if accepted[c.UID] || hastens {
			requests = append(requests, c.Request)
		}
	}
	return requests
}

// contenders returns the candidates that are not in flight, in the order in which they get places. Within a class that
// is the order of candidates, but for those that take turns: of the lapsed ones the one that was requested longest ago
// comes first, of the stale ones last.
func (s *settling) contenders(list []candidate) (contenders []contender) {
	for i := range list {
		if !list[i].pod.InFlight {
			contenders = append(contenders, s.contender(&list[i]))
		}
	}
	slices.SortStableFunc(contenders, func(a, b contender) int {
		switch {
		case a.class != b.class:
			return cmp.Compare(a.class, b.class)
		case a.class == lapsed:
			return a.wait.Since.Compare(b.wait.Since)
		case a.class == stale:
			return b.wait.Since.Compare(a.wait.Since)
		}
		return 0
	})
	return contenders
}

func (s *settling) contender(c *candidate) contender {
	_, offered := slices.BinarySearch(s.last.Offered, c.UID)
	wait := s.lastWait(c)
	waits := !wait.Since.IsZero()
	switch {
	case waits && !offered:
		return contender{c, lapsed, wait}
	case waits && (wait.Blocked || s.now.Sub(wait.Since) >= servePatience):
		return contender{c, stale, wait}
	case c.Forced && offered:
		return contender{c, forcedWaiting, wait}
	case c.Forced:
		return contender{c, forcedFresh, wait}
	case offered:
		return contender{c, softWaiting, wait}
	}
	return contender{c, softFresh, wait}
}

// lastWait returns the wait of a candidate, with the zero time if there is none or if the request has become stronger
// since: forced, or one that no disruption budget can block. Such a candidate competes as one that has not waited, if
// it is not blocked, and once in a wait: a plugin that asks with force every other time gains nothing.
func (s *settling) lastWait(c *candidate) Wait {
	w := Wait{UID: c.UID}
	if i := slices.IndexFunc(s.last.Waits, func(w Wait) bool { return w.UID == c.UID }); i >= 0 {
		w = s.last.Waits[i]
	}
	podWorker := c.Killer == snapshot.PodWorker
	if !c.blocked && ((c.Forced && !w.Forced) || (podWorker && !w.PodWorker)) {
		w.Since, w.Blocked = time.Time{}, false
	}
	w.Forced, w.PodWorker, w.Blocked = w.Forced || c.Forced, w.PodWorker || podWorker, w.Blocked || c.blocked
	return w
}

// accept reports whether a contender gets a place if there is one, and counts it for the round if it is new.
func (s *settling) accept(c *contender) bool {
	switch c.class {
	case forcedWaiting, softWaiting, stale:
		return true
	case forcedFresh, softFresh, lapsed:
	}
	if (s.rules.Burst >= 0 && s.next.Fresh >= s.rules.Burst) || (!c.Forced && s.next.FreshSoft > 0) {
		return false
	}
	if !c.Forced {
		s.next.FreshSoft++
	}
	s.next.Fresh++
	return true
}

// wait records since when a contender is requested. One that gives its place back keeps the time, so that it comes
// after those that have not waited.
func (s *settling) wait(c *contender, accepted bool) {
	if !accepted && c.class < lapsed {
		return
	}
	w := c.wait
	switch {
	case accepted && c.class == lapsed:
		w = Wait{UID: c.UID, Since: s.now, Forced: c.Forced, PodWorker: c.Killer == snapshot.PodWorker}
	case w.Since.IsZero():
		w.Since = s.now
	}
	s.next.Waits = append(s.next.Waits, w)
}
