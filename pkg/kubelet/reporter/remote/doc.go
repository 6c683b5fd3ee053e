// Package remote connects reporter plugins behind sockets with the contract of package reporter. It speaks the protocol
// reporterplugin.v1alpha1, which is Katalyst's.
//
//	plugin  the two calls, and the errors of the contract
//	answer  from messages to contents, within limits
//	probe   whether a plugin answers, before it is registered
//
// A plugin may send anything. What a message may hold is counted before it is decoded, since a small message can have
// very many empty parts. A stream is read no faster than its messages can be handled: the plugin waits.
package remote
