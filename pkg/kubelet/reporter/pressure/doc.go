// Package pressure is the reporter plugin pressure. It reports on the Node how far each eviction signal is from its
// hard threshold, as policy.Outlook returns it: in an annotation, and by option in labels for node affinity.
//
//	plugin   receives rounds of the eviction manager, and answers polls and streams
//	tracker  which values are reported, as a function of the outlooks and of time
//	steps    in which steps values are reported
//	content  how they are encoded
//	restore  what is taken over from an earlier run of the agent
//
// Decisions have an outlook only while settings.Options.ReportOutlook is set.
//
// What is reported changes rarely: amounts and times are in steps, a value that gets worse is reported at once, and one
// that gets better after it has been better for a minute. Signals whose newest observation is older than a few
// monitoring periods are not reported.
package pressure
