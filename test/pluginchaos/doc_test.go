// Package pluginchaos runs the real path of eviction plugins against plugins that hang, crash and lie: stock's plugin
// manager, the host, the adapter, the driver, the arbiter and the eviction manager, with real sockets and the real
// clock. The node, its stats and the pod workers are fakes. Plugins run in processes of their own, which are this test
// binary, so that their memory and goroutines do not count for the agent.
//
//	main     the test binary as a process of plugins
//	child    start and end of such a process, and which pods its plugins have named
//	plugins  serving a plugin at a socket
//	honest   plugins that name their own pods
//	hanging, crashing, lying  plugins that do not
//	node     the fake node
//	agent    the composition of the agent's parts
//	chaos    the test of chaos
//	cost     registrations without leaks, and the cost of plugins at rest
//
// PLIMSOLL_PLUGIN_CHAOS is a duration, 5m for example: TestChaos then takes that long, and compares the latencies of
// honest plugins with and without chaos. This needs a machine that does nothing else.
package pluginchaos
