// Package escalation decides what is done next about a pod that the container runtime does not stop in time: the rungs
// of a ladder, each with its moment and its condition. It does nothing itself, and time is a parameter.
// docs/adr/0006-escalation.md has the reasons.
//
//	asked ──grace──▶ End ──Slack──▶ due ──Margin──▶ Tell, KillByRuntime ──½ Margin──▶ StopSandbox
//	                                                                                       │ ½ Margin
//	                                                             Report ◀──Margin── KillCgroup
//	                                                              ▲  │
//	                                                              └Again
//
// A runtime that has not answered since the pod was to be stopped has not signalled the containers either: they are not
// to die of that at once, so that everything but Tell is later by Absence.
package escalation
