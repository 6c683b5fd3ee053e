// Package escalation decides what is done next about a pod that the container runtime does not stop in time. The steps
// have a fixed order; each has a time and a condition. The package has no effects, and time is a parameter. Package
// podsync takes the steps. docs/adr/0006-escalation.md has the reasons.
//
//	request ──grace period──▶ End ──Slack──▶ due ──Margin──▶ Warn, KillByRuntime ──½ Margin──▶ StopSandbox
//	                                                                                              │ ½ Margin
//	                                                                     Report ◀──Margin──── KillCgroup
//	                                                                      ▲  │
//	                                                                      └──┘ RepeatPeriod
//
// A runtime that has not answered any attempt to stop the pod has not sent the stop signal to the containers either. So
// that they are not killed without it, all steps but Warn are then later by SilentDelay.
package escalation
