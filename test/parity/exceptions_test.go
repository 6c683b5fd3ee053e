package parity

// state is the state of a name that is not the same on both sides, in the words of the document.
type state string

const (
	// another is for a name for which we have another one.
	another state = "same, another way"
	// missing is for what stock has and we do not.
	missing state = "missing"
	// needless is for a name of stock without a meaning here.
	needless state = "not needed"
	// extra is for what only we have.
	extra state = "ours only"
)

type key struct{ section, name string }

type exception struct {
	state state
	why   string
}

const (
	flagNames   = "Command line flags"
	flagFields  = "Settings that only flags have"
	configNames = "KubeletConfiguration"
	gates       = "Feature gates"
	events      = "Event reasons"
	calls       = "Calls into libraries"
	packages    = "Packages"
)

// Reasons that several rows share.
const (
	windows     = "Windows; this program is for Linux only"
	ownCommand  = "the command line is parsed with pflag alone, without cobra; the help text is compared above"
	ownServers  = "pkg/kubelet/server listens itself, so that servers stop with the agent and a taken port is an error"
	ownOrdering = "computed by the own package, and compared with stock in its differential tests"
	ownEventfd  = "one blocking read per eventfd, closed to stop"
	ownReplaces = "this is what the program replaces"
)

// exceptions are all known differences. The test fails for a difference without an entry, and for an entry without a
// difference.
var exceptions = map[key]exception{
	{flagFields, "WindowsPriorityClass"}: {needless, windows},
	{flagFields, "WindowsService"}:       {needless, windows},

	{gates, "SupplementalGroupsPolicy"}: {
		needless, "GA and locked to true since 1.35; the container's user is always reported",
	},

	{events, "EvictionBlocked"}: {
		extra, "the API server refuses for the time being to evict a pod that a plugin requests",
	},
	{events, "EvictionDryRun"}: {extra, "what a threshold in dry run would have done"},
	{events, "EvictionAnnotationIgnored"}: {
		extra, "an annotation about eviction is ignored, and why",
	},
	{events, "SoftEvictionNotice"}: {
		extra, "eviction plugins ask for the pod, which has opted for notice instead of eviction",
	},
	{events, "PressureConfigInvalid"}: {
		extra, "on the Node: a new NodePressureConfiguration is invalid, and the old one stays in force",
	},
	{events, "PluginRefused"}: {
		extra, "on the Node, once for a plugin and reason: a plugin was refused, and why; stock has none",
	},
	{events, "EvictionPluginTaintsUnavailable"}: {
		extra, "on the Node, once: taints of conditions of eviction plugins cannot be changed, and why; stock has none",
	},
	{events, "EvictionPluginTaintRecordRejected"}: {
		extra, "on the Node: the record of taints of eviction plugins was damaged and set aside; stock has none",
	},
	{events, "CustomNodeResourceNotPublished"}: {
		extra, "on the Node: what reporter plugins report cannot be published, and why; stock has none",
	},
	{events, "CustomNodeResourceRecordRejected"}: {
		extra, "on the Node: the record of taints of the CustomNodeResource was damaged and set aside",
	},
	{events, "ReporterNodeRecordRejected"}: {
		extra, "on the Node: the record of its fields of reporter plugins was damaged and set aside",
	},
	{events, "ReporterCheckpointRejected"}: {
		extra, "on the Node: the checkpoint of reporter plugins was damaged and set aside",
	},
	{events, "ReporterObjectOverdue"}: {
		extra, "on the Node: what reporter plugins report has not been written for 5 minutes, and why",
	},
	{events, "PressureConfigReloaded"}: {extra, "on the Node: a new NodePressureConfiguration is in force"},
	{events, "WaitingForRoom"}: {
		extra, "a pod that would be created again for this node waits for the end of pressure; stock rejects it again " +
			"and again",
	},
	{events, "EvictionFenced"}: {
		extra, "an evicted pod that grew fast had a limit until its end, and how it ended; stock does not stop its growth",
	},
	{events, "EvictionMemoryUnwatched"}: {
		extra, "on the Node: memory counters could not be read for 30 s; stock has no such counters",
	},
	{events, "EvictionRuntimeSilent"}: {
		extra, "on the Node: the container runtime has not returned for 30 s what pods use, so that no pod is evicted for " +
			"file systems; stock evicts no pod for any signal then, without an event",
	},
	{events, "EvictionSignalUnknown"}: {
		extra, "on the Node: a signal has been unknown for 30 s; stock evicts no pod then, without an event",
	},
	{calls, "k8s.io/kubernetes/pkg/kubelet/allocation.NewManager"}: {another, "stock's in-memory manager, whose " +
		"contents package allocations copies to the same checkpoint, so that no reader waits for the disk"},
	{calls, "golang.org/x/sys/unix.EpollCreate1"}: {another, ownEventfd},
	{calls, "golang.org/x/sys/unix.EpollCtl"}:     {another, ownEventfd},
	{calls, "golang.org/x/sys/unix.EpollWait"}:    {another, ownEventfd},
	{calls, "k8s.io/kubernetes/pkg/api/v1/pod.UpdatePodCondition"}: {
		another, "podkill.Disruption writes the condition, without a clock; the status manager sets the time of the " +
			"transition",
	},

	{calls, "k8s.io/cloud-provider.DisableWarningForProvider"}: {
		needless, "any provider but external is rejected, there is no deprecation to warn of",
	},
	{calls, "k8s.io/cloud-provider.ErrorForDisabledProvider"}: {
		another, "rejected when settings are validated, with a message that names the flag",
	},

	{calls, "(*github.com/spf13/cobra.Command).OutOrStderr"}:      {another, ownCommand},
	{calls, "(*github.com/spf13/cobra.Command).OutOrStdout"}:      {another, ownCommand},
	{calls, "(*github.com/spf13/cobra.Command).SetHelpFunc"}:      {another, ownCommand},
	{calls, "(*github.com/spf13/cobra.Command).SetUsageFunc"}:     {another, ownCommand},
	{calls, "(*github.com/spf13/cobra.Command).UseLine"}:          {another, ownCommand},
	{calls, "(*github.com/spf13/pflag.FlagSet).GetBool"}:          {another, ownCommand},
	{calls, "(*github.com/spf13/pflag.FlagSet).GetNormalizeFunc"}: {another, ownCommand},
	{calls, "(*github.com/spf13/pflag.FlagSet).VarP"}:             {another, ownCommand},
	{calls, "k8s.io/component-base/version/verflag.PrintAndExitIfRequested"}: {
		another, "the version is printed without ending the process from inside",
	},
	{calls, "k8s.io/apiserver/pkg/server.SetupSignalContext"}: {
		another, "signals end a context; a second one ends the process",
	},
	{calls, "k8s.io/kubernetes/cmd/kubelet/app/options.ValidateKubeletServer"}: {
		another, "its two parts are called: ValidateKubeletFlags and ValidateKubeletConfiguration",
	},
	{calls, "(*k8s.io/apimachinery/pkg/apis/meta/v1.TypeMeta).GetObjectKind"}: {
		another, "drop-in files are merged by an own function; compared with stock on random files",
	},

	{calls, "k8s.io/kubernetes/pkg/kubelet/server.ListenAndServeKubeletReadOnlyServer"}: {another, ownServers},
	{calls, "k8s.io/kubernetes/pkg/kubelet/server.ListenAndServeKubeletServer"}:         {another, ownServers},
	{calls, "k8s.io/kubernetes/pkg/kubelet/server.ListenAndServePodResources"}:          {another, ownServers},
	{calls, "k8s.io/kubernetes/pkg/kubelet/server.ListenAndServePodsServer"}:            {another, ownServers},

	{calls, "(*k8s.io/api/core/v1.ResourceList).StorageEphemeral"}: {
		another, ownOrdering,
	},
	{calls, "k8s.io/kubernetes/pkg/kubelet/images.NewImageGCManager"}: {
		another, "pkg/kubelet/reclaim removes images, from time to time by stock's rules and under pressure for the need",
	},
	{calls, "k8s.io/kubernetes/pkg/api/v1/resource.GetResourceRequestQuantity"}: {
		another, ownOrdering,
	},
	{calls, "k8s.io/kubernetes/pkg/kubelet/container.ShouldContainerBeRestarted"}: {
		another, ownOrdering,
	},
	{calls, "k8s.io/kubernetes/pkg/kubelet/kuberuntime.HasAnyRegularContainerCreated"}: {
		another, ownOrdering,
	},
	{calls, "k8s.io/kubernetes/pkg/kubelet/types.SortStatusesOfInitContainers"}: {
		another, ownOrdering,
	},
	{calls, "k8s.io/utils/net.IsIPv4"}: {
		another, ownOrdering,
	},
	{calls, "(*k8s.io/component-helpers/nodedeclaredfeatures.FeatureMapper).MustMapSorted"}: {
		another, "MapSorted: an unknown feature is an error of the start, not a panic",
	},
	{calls, "(*k8s.io/kubernetes/pkg/kubelet/lifecycle.PodSyncHandlers).AddPodSyncHandler"}: {
		another, "the handlers are given to the parts that ask them when those are made",
	},
	{calls, "(*k8s.io/kubernetes/pkg/kubelet/lifecycle.PodSyncLoopHandlers).AddPodSyncLoopHandler"}: {
		another, "the handlers are given to the parts that ask them when those are made",
	},
	{calls, "k8s.io/apimachinery/pkg/util/runtime.HandleCrash"}: {another, "HandleCrashWithContext"},
	{calls, "k8s.io/apimachinery/pkg/util/runtime.HandleError"}: {another, "the error is returned and logged once"},
	{calls, "k8s.io/apimachinery/pkg/util/runtime.Must"}:        {another, "the error is returned"},
	{calls, "k8s.io/apimachinery/pkg/util/wait.JitterUntil"}:    {another, "JitterUntilWithContext"},
	{calls, "k8s.io/component-helpers/node/util.GetNodeCondition"}: {
		another, "the Ready condition is looked up in pkg/kubelet/nodestatus",
	},
	{calls, "k8s.io/klog/v2.ErrorS"}: {another, "the logger comes with the context"},
	{calls, "k8s.io/apimachinery/pkg/util/wait.ExponentialBackoff"}: {
		another, "logind's reply is awaited with the clock that is a parameter",
	},
	{calls, "k8s.io/kubernetes/pkg/kubelet/nodeshutdown/systemd.NewDBusCon"}: {
		another, "a connection of its own, on which each call has a time-out",
	},
	{calls, "k8s.io/kubernetes/pkg/volume/csi.GetCSIMounterPath"}: {
		another, "the name is a constant of pkg/kubelet/housekeeping, which would otherwise depend on the whole CSI plugin",
	},
	{calls, "k8s.io/kubernetes/pkg/volume/util.MakeAbsolutePath"}: {another, "paths are made absolute with path/filepath"},
	{calls, "k8s.io/utils/path.ReadDirNoStat"}:                    {another, "os.ReadDir does not stat either"},

	{calls, "k8s.io/kubernetes/pkg/kubelet/container.HasWindowsHostProcessContainer"}: {needless, windows},
	{calls, "k8s.io/kubernetes/pkg/volume/util.GetWindowsPath"}:                       {needless, windows},
	{calls, "k8s.io/kubernetes/pkg/volume/util.IsWindowsLocalPath"}:                   {needless, windows},
	{calls, "k8s.io/kubernetes/pkg/volume/util.IsWindowsUNCPath"}:                     {needless, windows},

	{packages, "k8s.io/component-base/cli"}:                    {another, ownCommand},
	{packages, "k8s.io/kubernetes/cmd/kubelet"}:                {needless, ownReplaces},
	{packages, "k8s.io/kubernetes/cmd/kubelet/app"}:            {needless, ownReplaces},
	{packages, "k8s.io/kubernetes/pkg/kubelet"}:                {needless, ownReplaces},
	{packages, "k8s.io/kubernetes/pkg/kubelet/eviction"}:       {needless, ownReplaces},
	{packages, "k8s.io/kubernetes/pkg/kubelet/nodeshutdown"}:   {needless, ownReplaces},
	{packages, "k8s.io/kubernetes/pkg/kubelet/preemption"}:     {needless, ownReplaces},
	{packages, "golang.org/x/sync/errgroup"}:                   {extra, "servers that stop together"},
	{packages, "k8s.io/apimachinery/pkg/util/resourceversion"}: {extra, "compares versions of one object"},
	{packages, "k8s.io/client-go/util/csaupgrade"}:             {extra, "takes over fields that Katalyst's agent wrote"},
}
