// Package system is the reporter plugin system-reporter-plugin, under the name of Katalyst's. It reports the field
// nodeResourceProperties of the spec of the CustomNodeResource:
//
//	numa       number of NUMA nodes
//	cpu        number of logical CPUs
//	memory     bytes of memory
//	nbw        speed of the fastest network interface that is up, in Mbit/s
//	cis        instruction sets that all CPUs have: avx2, avx512
//	cpu_flags  flags that all CPUs have, in one value, with commas between them; only with the option of this name
//	topology   a JSON object for each network interface of hardware or bonding: Iface, Speed, NumaNode, Enable
//	is_vm      "true" or "false"
//
// What cannot be read is absent. Names and units are those of Katalyst, which reports -1 instead of leaving out.
//
// The files are read at most every 30 s. What has changed then is sent.
package system
