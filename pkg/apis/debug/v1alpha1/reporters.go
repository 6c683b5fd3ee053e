package v1alpha1

import "time"

// Reporter is the state of one reporter plugin at one socket. A plugin that has stopped is shown for as long as its
// answer is served.
type Reporter struct {
	Name string `json:"name"`
	// InTree is true for a plugin of the agent. Socket is the path of the socket of another one.
	InTree bool   `json:"inTree"`
	Socket string `json:"socket,omitempty"`
	// Enabled is true if the configuration selects the plugin. Others are not called.
	Enabled bool `json:"enabled"`
	// Active is true while the plugin is called.
	Active bool `json:"active"`
	// Registered is when the plugin registered last; not set for a plugin of the agent.
	Registered time.Time    `json:"registered,omitzero"`
	Health     PluginHealth `json:"health"`
	// Streaming is true if the stream is open and has sent an answer.
	Streaming bool `json:"streaming"`
	// Answered is when the answer that is served was received, not set if there is none.
	Answered time.Time `json:"answered,omitzero"`
	// UnconfirmedSince is when the plugin ceased to confirm the answer, not set while it does. The answer is served for
	// the stop grace period from then on.
	UnconfirmedSince time.Time `json:"unconfirmedSince,omitzero"`
	// Restored is true if the answer is one of an earlier run of the agent.
	Restored bool `json:"restored"`
	// RefusedAnswers are the reasons why the last answers were refused, at most one of polls and one of the stream.
	RefusedAnswers []string `json:"refusedAnswers,omitempty"`
	// RefusedFields are what is left out of the answer that is served, in the order of kinds and fields.
	RefusedFields []RefusedField `json:"refusedFields,omitempty"`
}

// RefusedField is a field that is left out.
type RefusedField struct {
	Kind string `json:"kind"`
	// Field is its part and the name of its Go field: status.TopologyZone. It is empty if all fields of the kind are left
	// out.
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

// ReportedObject is an object that the agent publishes for reporter plugins.
type ReportedObject struct {
	// Kind is CustomNodeResource or Node.
	Kind string `json:"kind"`
	// Published is true if the configuration selects the object. Another one is not written.
	Published bool `json:"published"`
	// Fields have a value now, in the order of paths.
	Fields []ReportedField `json:"fields,omitempty"`
	// Conflicts are the values that differ between plugins, in the order of paths. MoreConflicts is how many there are
	// beside those.
	Conflicts     []ReportConflict `json:"conflicts,omitempty"`
	MoreConflicts int              `json:"moreConflicts,omitempty"`
	// LastWrite is when the object was written last, not set if it was not. Writes is how often since the start.
	LastWrite time.Time `json:"lastWrite,omitzero"`
	Writes    int64     `json:"writes"`
	// PendingSince is when the oldest change came that is not written yet, not set if there is none.
	PendingSince time.Time `json:"pendingSince,omitzero"`
	// Overdue is true if that is more than 5 minutes ago.
	Overdue bool `json:"overdue"`
	// LastError is the error of the last write, empty if it succeeded.
	LastError string `json:"lastError,omitempty"`
}

// ReportedField is a field of an object.
type ReportedField struct {
	// Path is the path in JSON: status.topologyZone.
	Path string `json:"path"`
	// Bytes is the length of the value in JSON.
	Bytes int `json:"bytes"`
	// Plugins have given the value, or parts of it, in the order of names.
	Plugins []string `json:"plugins"`
}

// ReportConflict is a value that differs between plugins.
type ReportConflict struct {
	// Path is the path of the value in JSON, with the keys of elements of lists.
	Path string `json:"path"`
	// Used is the plugin whose value is published, Ignored the other one.
	Used    string `json:"used"`
	Ignored string `json:"ignored"`
}
