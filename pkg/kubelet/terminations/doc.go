// Package terminations stores on disk which pods the agent has begun to terminate, so that it resumes the terminations
// after a restart. The API server shows nothing of an eviction until the containers have stopped: without a record the
// next run of the agent would start the containers again, and the eviction would never be reported.
//
//	pod workers ──Save──► Store (memory) ──Run──► <root-dir>/plimsoll/terminations/<uid>.json
//	            ◄──Get───               ◄──Load──
//
// Stopping a pod never waits for its record: Save, Get and DeleteFunc access memory only, and Run writes the changes to
// disk. Run retries as long as the disk is full or read-only. Changes that are not written when the process ends are
// lost; the next run then treats the pod as one whose termination was never requested.
package terminations
