// Package checkpoint has the last answers of reporter plugins on disk, so that a restart of the agent removes none of
// their values from the objects in which they are published. It uses stock's checkpoint manager, which replaces the
// file as a whole.
//
//	checkpoint  New, Restore at the start, Run
//	format      the content of the file
//	metrics     writes
//
// The file is written when an answer, its plugin or the begin of a grace period has changed, and not when a plugin has
// given the same answer again; at most once in 5 s, and once more when the agent stops. What cannot be written is tried
// again after 5 s; nothing waits for it. While nothing changes, the file is not written for hours, although the plugins
// confirm what is in it. Therefore its time of modification is set every 5 min: it is when the agent was last running,
// and how old the answers are at the next start.
package checkpoint
