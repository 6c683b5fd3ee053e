// Package remote connects eviction plugins behind sockets with the contract of package plugin. It speaks the protocol
// evictionplugin.v1alpha1, which is Katalyst's.
//
//	plugin   the three calls
//	request  the pods of a round as plugins get them, encoded once for all plugins and calls (E24)
//	records  the eviction records of the candidates of a question
//	answer   from messages to values of the arbiter
//	pod      the UID of an encoded pod
//	wire     messages as bytes, and their limits
//	metrics  what was left out of requests and answers
//
// A plugin may send anything. Each part of an answer is decoded by itself, so that an invalid one costs that part and
// no other: a pod, a condition, deletion options. An answer of ThresholdMet whose type, operator or scalar fields are
// invalid is an error, which counts as a missing answer. What is decoded of an answer is bounded, whatever its 4 MiB
// hold.
package remote
