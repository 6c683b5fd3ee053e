package reporter

import "time"

// Options are the settings of the driver. They may change while the agent runs. Options must not be modified once they
// are in use.
type Options struct {
	// Remote and InTree return whether a plugin of that name is enabled: one behind a socket, one in the agent. They are
	// pure functions.
	Remote, InTree func(name string) bool
	// Period is the time between two polls, CallTimeout the longest time of one.
	Period, CallTimeout time.Duration
	// StopGracePeriod is how long the answer of a plugin is served that has stopped or does not confirm it.
	StopGracePeriod time.Duration
}
