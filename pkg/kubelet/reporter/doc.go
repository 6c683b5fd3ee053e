// Package reporter collects what reporter plugins report of the node. What it collects is merged by package merge.
//
//	contract  what a plugin is, in the agent or behind a socket
//	options   which plugins are called, and how
//	driver    New, Run, and what others get from the driver
//	loop      when plugins are polled, and which are called
//	callers   polls and streams, each in a goroutine
//	metrics   registrations, calls, refused answers
//
// Each plugin is polled at its registration and each period, beside all others, with one poll under way at a time. At
// the same time its stream is read. A stream that ends is opened again after 1 s, then after twice the time, at most
// 30 s, with up to a fifth more at random. Package answers decides which answers are served, and for how long.
//
// The lock of the driver is not held while a plugin is called.
package reporter
