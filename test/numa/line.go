package numa

// Line is one result of a machine. One of the fields is set, with Situation beside Answers.
type Line struct {
	// File is the name of a recorded file of the kernel, and Content what it has.
	File, Content string `json:",omitempty"`
	// Situation names what was done, and Answers what a plugin answered then, round by round.
	Situation string   `json:",omitempty"`
	Answers   []Answer `json:",omitempty"`
	// Error ends the run; Done is the last line of one that has not failed.
	Error string `json:",omitempty"`
	Done  bool   `json:",omitempty"`
}

// Answer is what a plugin answered in a round.
type Answer struct {
	// Pods are those to evict, the best first.
	Pods []string `json:",omitempty"`
	// Target and Observed are those of the threshold that is met, Observed has what was read otherwise too.
	Target, Observed float64
	Note             string `json:",omitempty"`
	// Err is why the answer is missing.
	Err string `json:",omitempty"`
}
