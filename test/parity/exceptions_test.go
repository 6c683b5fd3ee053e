package parity

// state is what the document says about a name that is not the same on both sides.
type state string

const (
	// another is something that we have under another name or reach in another way.
	another state = "same, another way"
	// missing is something that stock does and we do not.
	missing state = "missing"
	// needless is something of stock that has no meaning here.
	needless state = "not needed"
	// extra is something that only we have.
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
	ownReplaces = "this is what the program replaces"
)

// exceptions are all known differences. An entry whose difference has gone fails the test, as does a difference without
// an entry.
var exceptions = map[key]exception{
	{flagFields, "WindowsPriorityClass"}: {needless, windows},
	{flagFields, "WindowsService"}:       {needless, windows},

	{gates, "SupplementalGroupsPolicy"}: {
		needless, "GA and locked to true since 1.35; the container's user is always reported",
	},

	{events, "EvictionDryRun"}: {extra, "says what a threshold that is only tried out would have done"},
	{events, "EvictionWishIgnored"}: {
		extra, "says that a pod's annotation about eviction does not count here, and why",
	},
	{events, "PressureConfigInvalid"}: {
		extra, "says on the Node that a new NodePressureConfiguration is wrong and the old one goes on",
	},
	{events, "PressureConfigReloaded"}: {extra, "says on the Node that a new NodePressureConfiguration is in effect"},
	{events, "WaitingForRoom"}: {
		extra, "says that a pod which would come straight back waits for the end of pressure; stock rejects it again and " +
			"again",
	},
	{events, "EvictionMemoryUnwatched"}: {extra, "says on the Node that memory counters could not be read for 30 s; " +
		"stock has no such counters"},
	{events, "EvictionRuntimeSilent"}: {extra, "says on the Node that the container runtime has not told for 30 s what pods use, so that nobody is evicted for file systems; stock evicts nobody for anything then, and says nothing"},
	{events, "EvictionSignalUnknown"}: {extra, "says on the Node that a signal has been blind for 30 s; stock evicts nothing then, and says nothing"},
	{calls, "k8s.io/kubernetes/pkg/kubelet/allocation.NewManager"}: {another, "stock's in-memory manager, whose " +
		"contents package allocations copies to the same checkpoint, so that no reader waits for the disk"},
	{calls, "golang.org/x/sys/unix.EpollCreate1"}:                  {another, "one blocking read per eventfd, closed to stop"},
	{calls, "golang.org/x/sys/unix.EpollCtl"}:                      {another, "one blocking read per eventfd, closed to stop"},
	{calls, "golang.org/x/sys/unix.EpollWait"}:                     {another, "one blocking read per eventfd, closed to stop"},
	{calls, "k8s.io/kubernetes/pkg/api/v1/pod.UpdatePodCondition"}: {another, "podkill.Disruption writes the condition, without a clock; the status manager sets the time of the transition"},

	{calls, "k8s.io/cloud-provider.DisableWarningForProvider"}: {
		needless, "any provider but external is refused, there is no deprecation to warn of",
	},
	{calls, "k8s.io/cloud-provider.ErrorForDisabledProvider"}: {
		another, "refused when settings are checked, with a message that names the flag",
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
	{calls, "(k8s.io/apimachinery/pkg/util/sets.Set[string]).Len"}: {
		another, "the built-in len",
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
	{calls, "google.golang.org/grpc/status.FromError"}:          {another, "status.Code says the same"},
	{calls, "k8s.io/apimachinery/pkg/util/runtime.HandleCrash"}: {another, "HandleCrashWithContext"},
	{calls, "k8s.io/apimachinery/pkg/util/runtime.HandleError"}: {another, "the error is returned and logged once"},
	{calls, "k8s.io/apimachinery/pkg/util/runtime.Must"}:        {another, "the error is returned"},
	{calls, "k8s.io/apimachinery/pkg/util/wait.JitterUntil"}:    {another, "JitterUntilWithContext"},
	{calls, "k8s.io/component-helpers/node/util.GetNodeCondition"}: {
		another, "the Ready condition is looked up in pkg/kubelet/nodestatus",
	},
	{calls, "k8s.io/klog/v2.ErrorS"}:     {another, "the logger comes with the context"},
	{calls, "k8s.io/klog/v2.NewContext"}: {another, "the logger comes with the context"},
	{calls, "k8s.io/apimachinery/pkg/util/wait.ExponentialBackoff"}: {
		another, "logind's answer is awaited on the clock that is given",
	},
	{calls, "k8s.io/kubernetes/pkg/volume/csi.GetCSIMounterPath"}: {
		another, "the one name is known in pkg/kubelet/housekeeping, which would depend on the whole CSI plugin for it",
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
}
