// Package pluginhost registers plugins of one type that run in processes of their own, and calls them. A plugin creates
// a socket in a directory that stock's plugin manager watches; it asks the plugin for its name, endpoint and versions,
// and passes them to the Host, which is a cache.PluginHandler.
//
//	host      registrations in their order, and the endpoints that are in use
//	validate  which plugins are refused, and the event and metric of a refusal
//	dial      connections to a socket: where it is, and whose process listens
//	endpoint  calls of one plugin: one at a time, with a time-out, suspended after failures
//	connection, verification, token
//	          under the authentication Token: which connections are verified, when, and how
//	metrics   refusals by reason
//
// # Order of calls
//
// Stock's plugin manager runs one operation at a time per socket that it watches, and operations of different
// sockets at the same time. A registration is ValidatePlugin, then RegisterPlugin, in one operation.
// DeRegisterPlugin follows when the socket is removed, with the name and endpoint of the registration, or at once
// when the plugin does not accept the notification of its registration. A plugin may be registered at two sockets
// at the same time, for example during its update. Registrations are therefore kept by name and socket: the end of
// one does not end the other.
//
// A removal of the socket and its creation anew may reach the plugin manager as one change while it reconciles. Then
// RegisterPlugin is called again without DeRegisterPlugin, perhaps with another name. Therefore a registration replaces
// that of the same name and socket if it was made for an earlier file, and those of all other names that were.
//
// A plugin may name another socket than its own as its endpoint. Then one name and socket may be registered by several
// processes, and it is counted: the end of one of these registrations does not end those of the others, so that a
// process cannot deregister a plugin by naming its socket. With the socket all of them end. If a socket was created
// anew before a registration, those before it are counted on: in an update, the end of the old process comes after
// that.
//
// # Verified connections
//
// Under the authentication Token a connection is verified before its first call. gRPC makes connections by itself, and
// chooses the connection of a call when it begins. Therefore each connection has a value of its own (type connection),
// which gRPC shows to the credentials of a call (type guard) before it sends anything. The guard rejects a call over
// a connection that is not verified. Then the plugin at this connection is asked for its token; if that is accepted,
// the connection is verified and the call is made again. If another process takes the socket over in between, its
// connection is another value, and the call is rejected.
//
// # Plugins that do not answer
//
// With Config.Probe a plugin is called once before it is registered, over the connection that has been verified. One
// that does not answer is refused. Until then, at most 5 s, only the operation of its own socket waits.
//
// # Plugins that are not enabled
//
// A plugin that is not enabled when it registers is refused with that reason. The plugin manager tries again for as
// long as the socket exists: after 0.5 s at first, then after twice the time, at most 2 min 2 s. A plugin that is
// enabled by a reload of the configuration is therefore registered within about two minutes, without a restart.
//
// A plugin that a reload disables has been registered, and the plugin manager does not validate it again. Its
// registration stays and its connection is closed: Endpoints leaves it out, and it is not called. A reload that enables
// it makes a new endpoint for it at once. Recheck does both.
//
// # Goroutines
//
// Only connections have goroutines: those of gRPC, one that verifies a connection, and one that closes the connection
// of a removed endpoint or of a validation. A Host without endpoints has none, apart from validations that have just
// ended.
package pluginhost
