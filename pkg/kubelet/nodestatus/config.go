package nodestatus

import (
	"net"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// Registration is the configuration of the registration of the Node.
type Registration struct {
	// Register is false if the agent does not create the Node (--register-node=false). It reports the status nevertheless.
	Register   bool
	Hostname   string
	ProviderID string
	// Labels and Taints are those of --node-labels and --register-with-taints.
	Labels map[string]string
	Taints []v1.Taint
	// ControllerAttachDetach sets the annotation for the attach/detach controller of the control plane.
	ControllerAttachDetach bool
	// ExternalCloudProvider adds the taint that the cloud controller removes; the cloud controller sets the addresses.
	ExternalCloudProvider bool
	// GetOnExistsOnly is the gate KubeletRegistrationGetOnExistsOnly: a Node whose creation is forbidden is not read.
	GetOnExistsOnly bool
}

// Reporting has the configured values in the status, and the intervals of its reports.
type Reporting struct {
	// NodeIPs has at most one address per family. If it is empty, the address is detected.
	NodeIPs []net.IP
	MaxPods int
	// PodsPerCore is the maximum number of pods per core; 0 means no limit.
	PodsPerCore int
	// MaxImages is the maximum number of images in the status; -1 means no limit.
	MaxImages                     int32
	LocalStorageCapacityIsolation bool
	Endpoints                     v1.NodeDaemonEndpoints
	// DeclaredFeatures are reported unless they are nil, as without the gate NodeDeclaredFeatures; see DiscoverFeatures.
	DeclaredFeatures []string
	// UpdateFrequency is how often the status is computed.
	UpdateFrequency time.Duration
	// ReportFrequency is how often an unchanged status is sent.
	ReportFrequency time.Duration
}

// Config is the configuration of an Updater. All fields are required unless their comment says otherwise.
type Config struct {
	View *View
	// Client registers the node; nil means standalone.
	Client Client
	// Heartbeat reports the status, without a client-side rate limit and with a timeout. Nil means standalone.
	Heartbeat Client
	// OnHeartbeatFailure closes connections that may be dead. It is called when a retry fails as well. It may be nil.
	OnHeartbeatFailure func()

	Registration Registration
	Reporting    Reporting

	Machine          MachineSource
	Resources        NodeResources
	ContainerManager ContainerManager
	Runtime          Runtime
	State            RuntimeState
	RuntimeUpdater   RuntimeUpdater
	Pressure         Pressure
	Images           Images
	Volumes          Volumes
	Shutdown         Shutdown
	Startup          StartupTracker
	Recorder         Recorder
	Clock            clock.PassiveClock

	// Restore is called at most once, with the conditions of the first Node that is read, before a status is computed; see
	// RestoreAtStart. It may be called by any goroutine. It may be nil.
	Restore func([]v1.NodeCondition)
	// UnknownSignals returns the eviction signals of a pressure condition that cannot be observed, and since when; none if
	// all can be observed. It may be nil.
	UnknownSignals func(v1.NodeConditionType) (signals []string, since time.Time)
	// PluginConditions returns the conditions that eviction plugins report, in the order of names and each name once. A
	// condition of the Node with the prefix of plugin conditions that is not returned is removed. It is called with each
	// status that is computed, possibly concurrently, must be fast, and must call no method of the Updater but
	// PressureChanged. Nil means none.
	PluginConditions func() []PluginCondition
	// Reported is what reporter plugins report of the Node. It may be empty.
	Reported Reported
	// OnStartupOver is called once, when the node has become Ready or maxStartup is over. It may be nil.
	OnStartupOver func()
}
