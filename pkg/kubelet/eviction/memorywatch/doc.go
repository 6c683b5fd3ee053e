// Package memorywatch reads memory of the node and of pods between the rounds of the eviction manager: as often as the
// distance to the next threshold requires, but for no more than a fiftieth of a core. At a crossing it takes a reading
// that a decision can be based on, and knows from the last milliseconds which pods grow.
//
//	watcher    what one read of the counters does, and how long the pause after it is
//	floors     the limits and thresholds that counters are compared with
//	trend      how fast memory is used up, of the node or of all pods together
//	costs      what reads cost, and what pauses they require
//	credit     which crossings are worth a reading
//	postpone   for how long a decision waits, since the next reads will show which pod causes a crossing
//	pods       when single pods are read
//	looks      the last looks at the memory of each pod
//	rates      what looks say: how fast pods and the node grow
//
// A Watcher belongs to the goroutine of the eviction manager's loop. Time is a parameter, what is read is behind a
// Reader: nothing here has an effect but metrics.
package memorywatch
