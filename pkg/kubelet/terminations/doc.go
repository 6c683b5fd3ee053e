// Package terminations keeps on disk which pods the agent has begun to stop, so that it goes on with that after a restart. The API
// server shows nothing of an eviction until the containers are gone: without a record the next run of the agent would start such a
// pod again, and nobody would learn that it was evicted.
//
//	pod workers ──Keep──► Store (memory) ──Run──► <root-dir>/plimsoll/terminations/<uid>.json
//	            ◄──Get───               ◄──Load──
//
// A record is written beside the kill and never before it: Keep, Get and Retain touch memory only, Run follows with the disk and tries
// again as long as it is full or read-only. What Run has not written yet when the agent dies is lost; the pod is then treated as one
// that was never asked to stop.
package terminations
