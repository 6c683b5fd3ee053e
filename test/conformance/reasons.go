package conformance

// nodeReasons are the reasons why specs of the node suite are in no selection. The first that matches applies.
var nodeReasons = []reason{
	{`\[Benchmark\]`, "measures speed and consumption, against bounds made for machines of one kind"},
	{`\[Flaky\]`, "upstream marks it as one that fails now and then"},
	{`\[Feature:CriProxy\]|CRI Proxy`, "needs upstream's proxy between the kubelet and the container runtime"},
	{
		`Device Plugin|Device Manager`,
		"needs a device plugin, which no node of the development cluster has; devices are stock's container manager",
	},
	{`\[Feature:SCTPConnectivity\]`, "needs SCTP in kernel and network plugin; the network is not the kubelet's"},
	{`hugepages`, "needs a machine that sets huge pages aside"},
	{
		`KubeletSeparateDiskGC`,
		"needs a node whose images or containers have a disk of their own, with a runtime configured for it",
	},
	{`FSQuotaMonitoring`, "needs a file system with project quotas"},
	{
		`Lock contention`,
		"needs a kubelet that ends when its lock file is locked, in the whole run",
	},
	{`Memory Manager`, "disruptive, and about stock's memory manager; most of it needs several NUMA nodes"},
	{`\[DRA\]`, "disruptive, and about stock's library for dynamic resources"},
	{`^\[sig-storage\].*\[Conformance\]`, "the suite for clusters has it as well, and its selection runs it"},
	{`^\[sig-storage\].*\[Slow\]`, "slow: it waits for minutes that a pod does not start"},
	{
		`\[Disruptive\]`,
		"disruptive: changes the node's configuration, and is about none of eviction, admission and the life of pods",
	},
}

// clusterReasons are the reasons why specs of the cluster suite are in no selection. The first that matches applies.
var clusterReasons = []reason{
	{
		`^\[sig-(api-machinery|auth|cli|etcd|architecture|testing)\]`,
		"about the API server and its clients, not about nodes",
	},
	{
		`^\[sig-(apps|scheduling|autoscaling|scalability)\]`,
		"about controllers and the scheduler; most of it needs several nodes",
	},
	{
		`^\[sig-(network|cluster-lifecycle|cloud-provider|cloud-provider-gcp)\]`,
		"about network, cloud and installation, which the development cluster has not",
	},
	{`^\[sig-instrumentation\]`, "about metrics, events and logs of the control plane"},
	{`^\[sig-windows\]`, "needs nodes with Windows"},
	{`^\[sig-storage\]`, "needs storage drivers beside the kubelet's own volumes, or several nodes"},
	{`\[DRA\]`, "needs several nodes or a driver, and is about stock's library for dynamic resources"},
	{`GPU|SSH|NodeProblemDetector|AppArmor`, "needs hardware or a service that no node of the development cluster has"},
	{`NoExecuteTaintManager|Pod garbage collector`, "about controllers"},
	{
		`^\[sig-node\] Kubelet \[Serial\] \[Slow\]`,
		"measures speed and consumption, against bounds made for machines of one kind",
	},
	{`^\[sig-node\]`, "neither conformance nor in the suite for nodes; not tried so far"},
}
