// Package agentlife tests the lifecycle of pods over several runs of the agent, on virtual time, with the real sync
// loop, pod workers, lifecycle store, housekeeping, admission gate and shutdown manager. Runtime, manifests and API
// server are fakes that outlive the agent.
//
//	world_test.go      runtime, manifests and API server
//	agent_test.go      one run of the agent
//	runtime_test.go    its PLEG and the operations of its pod workers
//	sources_test.go    its sources of pods
//	admission_test.go  its admission and node shutdown
//	fakes_test.go      parts without effect
//	scenes_test.go     single scenarios
//	model_test.go      random histories
package agentlife
