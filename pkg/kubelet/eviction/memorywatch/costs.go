package memorywatch

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// PauseShare bounds the cost of reading: the pause after a read is at least this many times as long as the CPU
	// time that it took.
	PauseShare = 50
	// WakeTime is what each read costs beside the CPU time of its thread: the kernel and the Go runtime, whose monitor
	// thread runs for a while, use about that much when an idle process wakes up.
	WakeTime = 200 * time.Microsecond
	// Credit is by how much readings that cannot wait may exceed that share: the time that pays for them.
	// Debt is the most of it that is remembered: collections may cause readings as often as they like.
	Credit = 4 * time.Second
	Debt   = 2 * Credit
	// approachCredit is how much of the credit reads may use up before a threshold is crossed, while it is approached or
	// by a single read that takes long, or because statistics lag: the crossing itself must be read, and what follows.
	// approachPauseShare is PauseShare for reads while a threshold is approached, until the crossing is due.
	// After that, up to Credit, only the crossing itself is read when it is due, and again where it was not.
	approachCredit     = Credit / 2
	approachPauseShare = 2
)

// readCosts are the costs of reads of the memory counters, with what is read because of them, and how long the pauses
// have to be for that. The zero value has no clock: newReadCosts makes one.
type readCosts struct {
	// now is the clock of elapsed times, made when this was made. thread is nil if the reader is no ThreadClock.
	now    func() time.Time
	made   time.Time
	thread ThreadClock
	// wakeUp is what a read costs that thread does not measure.
	wakeUp time.Duration
	// begun and before are when the read under way began, and the CPU time then. reading is the cost of the part of it
	// that a round is based on, refreshing that of reading all pods before a threshold is met.
	begun               time.Time
	before              time.Duration
	reading, refreshing time.Duration
	// decision is what the next reading for a round costs, of changedCount pods: the lesser of the last two. decisionLast
	// is the last of them, all the cost of the last reading of all pods.
	decision, decisionLast, all time.Duration
	// last is the cost of the last read. took is the cost by which pauses are measured: the lesser of the last two, since
	// one read may take many times as long as the others.
	took, last time.Duration
	// paid is until when the pauses have to last for all reads up to now to have taken their share of the time.
	paid time.Time
}

func newReadCosts(reader Reader, clock func() time.Time) readCosts {
	c := readCosts{now: clock, made: clock()}
	if thread, ok := reader.(ThreadClock); ok {
		c.thread, c.wakeUp = thread, WakeTime
	}
	return c
}

// spent returns the CPU time of this thread until now. The caller must not change threads between two calls: begin and
// release see to that.
func (c *readCosts) spent() time.Duration {
	if c.thread == nil {
		return c.now().Sub(c.made)
	}
	return c.thread.ThreadTime()
}

// begin is called when a read begins. It ends with release.
func (c *readCosts) begin() {
	if c.thread != nil {
		c.thread.LockThread()
	}
	c.begun, c.before = c.now(), c.spent()
	c.reading, c.refreshing = 0, 0
}

// decided is called with the cost of a reading for a round, which was one of so many pods of all.
func (c *readCosts) decided(cost time.Duration, read, all int) {
	c.reading = cost
	if read == all {
		c.all = cost
	}
	if read > changedCount {
		cost = cost * changedCount / time.Duration(read)
	}
	c.decision, c.decisionLast = min(cost, c.decisionLast), cost
}

// end is called when a read has ended. A reading for a round is paid for later: the next read of the counters does not
// wait for that. Reading all pods in advance happens once in baseAge at most, and delays nothing.
func (c *readCosts) end(at time.Time, hardMet bool) {
	spent := c.spent() - c.before
	readsTotal.Inc()
	readsCPUSeconds.Add(max(0, spent+c.wakeUp).Seconds())
	cost := spent - c.refreshing
	c.took, c.last = min(c.last, cost-c.reading), cost-c.reading
	c.paid = snapshot.Later(c.paid, c.begun).Add(PauseShare * (cost + c.beside(hardMet)))
	if most := at.Add(Debt); c.paid.After(most) {
		c.paid = most
	}
}

// release ends what begin began, after the last use of spent.
func (c *readCosts) release() {
	if c.thread != nil {
		c.thread.UnlockThread()
	}
}

// beside returns what a read counts beside its CPU time: nothing while a hard threshold is met. Another pod may begin
// to use up the rest: that it is seen soon matters more.
func (c *readCosts) beside(hardMet bool) time.Duration {
	if hardMet {
		return 0
	}
	return c.wakeUp
}

// owed returns for how long pauses have to last from a time on until all reads are paid for.
func (c *readCosts) owed(at time.Time) time.Duration { return c.paid.Sub(at) }

// pauses returns the pause that reads have to be apart, that which pays for the last one alone, and what is owed since
// that ended. The former pays back what earlier reads have exceeded.
func (c *readCosts) pauses(readAt time.Time, hardMet bool) (share, last, owed time.Duration) {
	beside := c.beside(hardMet)
	share, last, owed = PauseShare*(c.took+beside), PauseShare*(c.last+beside), c.owed(readAt)
	if owed > last {
		share += share / 2
	}
	return share, last, owed
}
