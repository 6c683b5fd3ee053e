// Package reported decides which labels, annotations and extended resources of the Node are written for reporter
// plugins, and how often.
//
// The agent owns a field (one label, one annotation, one entry of capacity or allocatable) only if it is in the record
// of the fields that it has written. The caller stores the record before it changes the Node, so that an agent that is
// killed in between removes the field after the restart, when no plugin reports it any more. A field that the Node has
// with the reported value already, and that is not recorded, belongs to somebody else: it stays when the plugin goes.
//
// A field that somebody else writes with another value is written again, since plugins report only keys below domains
// that the configuration gives them; the caller does that at most once per heartbeat. The value that was there before
// is not restored.
package reported
