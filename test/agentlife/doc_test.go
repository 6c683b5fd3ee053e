// Package agentlife tests what becomes of pods over the whole life of the agent: with the real sync loop, pod workers,
// lifecycle store, housekeeping, admission gate and shutdown manager, on virtual time, beside a runtime, manifests and
// an API server that outlive the agent.
//
// world_test.go is what outlives the agent, agent_test.go one run of it, scenes_test.go holds stories, model_test.go
// random histories.
package agentlife
