package nodestatus

import (
	"net"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// Registration is what a Node is created with.
type Registration struct {
	// Register is false if somebody else creates the Node (--register-node=false); the status is reported all the same.
	Register   bool
	Hostname   string
	ProviderID string
	// Labels and Taints are those of --node-labels and --register-with-taints.
	Labels map[string]string
	Taints []v1.Taint
	// ControllerAttachDetach marks that the attach/detach controller of the control plane serves this node.
	ControllerAttachDetach bool
	// ExternalCloudProvider adds the taint that the cloud controller removes, and leaves the addresses to it.
	ExternalCloudProvider bool
	// GetOnExistsOnly is the gate KubeletRegistrationGetOnExistsOnly: a Node whose creation is forbidden is not read.
	GetOnExistsOnly bool
}

// Reporting is what the status says by configuration, and how often.
type Reporting struct {
	// NodeIPs is empty if the address is to be found out; at most one address per family.
	NodeIPs []net.IP
	MaxPods int
	// PodsPerCore bounds the pods by cores; 0 means no such bound.
	PodsPerCore int
	// MaxImages bounds the list of images; -1 means all.
	MaxImages                     int32
	LocalStorageCapacityIsolation bool
	Endpoints                     v1.NodeDaemonEndpoints
	// DeclaredFeatures are reported unless they are nil, as without the gate NodeDeclaredFeatures; see DiscoverFeatures.
	DeclaredFeatures []string
	// UpdateFrequency is how often the status is computed.
	UpdateFrequency time.Duration
	// ReportFrequency is how often it is sent although nothing changed.
	ReportFrequency time.Duration
}

// Config is what an Updater is made of. Everything is required unless its comment says otherwise.
type Config struct {
	View *View
	// Client registers the node; nil means standalone.
	Client Client
	// Heartbeat reports the status: without client-side rate limit, with a time-out. Nil means standalone.
	Heartbeat Client
	// OnHeartbeatFailure closes connections that may be dead; called when a retry fails as well. May be nil.
	OnHeartbeatFailure func()

	Registration Registration
	Reporting    Reporting

	Machine          MachineSource
	Resources        NodeResources
	ContainerManager ContainerManager
	Runtime          Runtime
	State            RuntimeState
	RuntimeUp        RuntimeUp
	Pressure         Pressure
	Images           Images
	Volumes          Volumes
	Shutdown         Shutdown
	Startup          StartupTracker
	Recorder         Recorder
	Clock            clock.PassiveClock

	// Restore is given the conditions of the first Node that is read, at most once, before a status is computed; see
	// RestoreAtStart. It is called from any goroutine. May be nil.
	Restore func([]v1.NodeCondition)
	// Blind tells which signals of a pressure condition cannot be seen, and since when; none when all can. May be nil.
	Blind func(v1.NodeConditionType) (signals []string, since time.Time)
	// OnStartupOver is called once, when the node has become Ready or its time for that has passed. May be nil.
	OnStartupOver func()
}
