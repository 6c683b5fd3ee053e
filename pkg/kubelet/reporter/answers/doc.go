// Package answers decides which answers of reporter plugins are served, and for how long. It has no clock, starts no
// goroutine and calls no plugin: its driver, package reporter, reports what happens to a Store.
//
// An endpoint is a plugin at a socket. At most one endpoint of each name is active: it is polled and its stream is
// read. An active endpoint that is missing from a registration is stopped, once. Each time at which an endpoint becomes
// active is a Run; what is reported of an earlier run changes nothing.
//
//	                     the answer            its grace period
//	message              replaced              ends
//	answer to a poll     replaced, unless a    ends
//	                     message came since
//	                     the poll began
//	no answer, no call   stays                 ends if the stream that is open has sent the answer
//	poll failed          stays                 begins
//	poll suspended       stays                 begins without an open stream
//	answer refused       stays                 begins
//	endpoint stopped     stays                 begins
//
// A grace period that has begun begins no second time. At its end the answer is removed. For an active endpoint at
// least three polls must have failed, or answers been refused, in between, so that one failure removes nothing, however
// short the period is.
//
// A plugin has one answer: the last one that any of its endpoints has given. It replaces the answers of endpoints of
// the same name that are stopped.
//
// Answers of a checkpoint are those of stopped endpoints, until the first answer of their plugin.
package answers
