package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersionKind is that of CustomNodeResource.
var GroupVersionKind = schema.GroupVersionKind{
	Group: "node.katalyst.kubewharf.io", Version: "v1alpha1", Kind: "CustomNodeResource",
}

// CustomNodeResource is what Katalyst's scheduler and controllers read of a node beside its Node. It is cluster scoped,
// named as the Node, and has a status subresource.
type CustomNodeResource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CustomNodeResourceSpec   `json:"spec,omitempty"`
	Status CustomNodeResourceStatus `json:"status,omitempty"`
}

// CustomNodeResourceSpec has what changes seldom.
type CustomNodeResourceSpec struct {
	// NodeResourceProperties are facts about the hardware. Their names are unique.
	NodeResourceProperties []Property `json:"nodeResourceProperties,omitempty"`
	// Taints keep pods of single QoS levels off the node. Key, effect and QoS level together are unique. Katalyst's
	// controllers write the same list.
	Taints []Taint `json:"taints,omitempty"`
}

// CustomNodeResourceStatus has what changes while pods run.
type CustomNodeResourceStatus struct {
	// Resources are those of the whole node.
	Resources Resources `json:"resources"`
	// TopologyZone are the outermost zones, usually the sockets. Type and name together are unique in each list of zones.
	TopologyZone []TopologyZone `json:"topologyZone,omitempty"`
	// TopologyPolicy names policy and scope of the topology manager, such as SingleNUMANodeContainerLevel.
	TopologyPolicy TopologyPolicy `json:"topologyPolicy"`
	// Conditions are written by Katalyst's controllers.
	Conditions []CNRCondition `json:"conditions,omitempty"`
	// NodeMetricStatus is the usage of the node.
	NodeMetricStatus *NodeMetricStatus `json:"nodeMetricStatus,omitempty"`
}

// Property is a fact about the hardware: a list of words, or a quantity.
type Property struct {
	PropertyName     string             `json:"propertyName"`
	PropertyValues   []string           `json:"propertyValues,omitempty"`
	PropertyQuantity *resource.Quantity `json:"propertyQuantity,omitempty"`
}

// Taint is a taint for pods of one QoS level.
type Taint struct {
	v1.Taint `json:",inline"`
	QoSLevel QoSLevel `json:"qosLevel"`
}

// QoSLevel is one of Katalyst's QoS levels of pods. The API server accepts only those that are listed here.
type QoSLevel string

const (
	QoSLevelReclaimedCores QoSLevel = "reclaimed_cores"
	QoSLevelSharedCores    QoSLevel = "shared_cores"
	QoSLevelDedicatedCores QoSLevel = "dedicated_cores"
	QoSLevelSystemCores    QoSLevel = "system_cores"
)

// QoSLevels has all QoS levels.
var QoSLevels = []QoSLevel{
	QoSLevelReclaimedCores, QoSLevelSharedCores, QoSLevelDedicatedCores, QoSLevelSystemCores,
}

// TopologyType is the kind of a zone.
type TopologyType string

const (
	TopologyTypeSocket     TopologyType = "Socket"
	TopologyTypeNuma       TopologyType = "Numa"
	TopologyTypeCacheGroup TopologyType = "L3CacheGroup"
	TopologyTypeGPU        TopologyType = "GPU"
	TopologyTypeNIC        TopologyType = "NIC"
	TopologyTypeStorage    TopologyType = "Storage"
)

// TopologyPolicy is a policy of the topology manager together with its scope.
type TopologyPolicy string

const (
	TopologyPolicyNone                         TopologyPolicy = "None"
	TopologyPolicySingleNUMANodeContainerLevel TopologyPolicy = "SingleNUMANodeContainerLevel"
	TopologyPolicySingleNUMANodePodLevel       TopologyPolicy = "SingleNUMANodePodLevel"
	TopologyPolicyRestrictedContainerLevel     TopologyPolicy = "RestrictedContainerLevel"
	TopologyPolicyRestrictedPodLevel           TopologyPolicy = "RestrictedPodLevel"
	TopologyPolicyBestEffortContainerLevel     TopologyPolicy = "BestEffortContainerLevel"
	TopologyPolicyBestEffortPodLevel           TopologyPolicy = "BestEffortPodLevel"
	TopologyPolicyNumericContainerLevel        TopologyPolicy = "NumericContainerLevel"
	TopologyPolicyNumericPodLevel              TopologyPolicy = "NumericPodLevel"
)

// TopologyZone is a socket, a NUMA node, a device, or another part of the machine that has resources of its own.
type TopologyZone struct {
	Type TopologyType `json:"type"`
	Name string       `json:"name"`
	// Resources are those of this zone, the zones in it included.
	Resources Resources `json:"resources"`
	// Attributes have unique names.
	Attributes []Attribute `json:"attributes,omitempty"`
	// Allocations are what pods use of the zone, one entry per pod.
	Allocations []Allocation `json:"allocations,omitempty"`
	// Children are the zones in this one.
	Children []TopologyZone `json:"children,omitempty"`
	// Siblings are relations to zones of the same level. Type and name together are unique.
	Siblings []Sibling `json:"siblings,omitempty"`
}

// Resources are quantities of the node or of a zone.
type Resources struct {
	Allocatable *v1.ResourceList `json:"allocatable,omitempty"`
	Capacity    *v1.ResourceList `json:"capacity,omitempty"`
	// ResourcePackages divide the resources into units of a fixed ratio. Their names are unique.
	ResourcePackages []ResourcePackage `json:"resourcePackages,omitempty"`
	// ResourcePools reserve resources for kinds of pods. Their names are unique.
	ResourcePools []ResourcePool `json:"resourcePools,omitempty"`
}

// ResourcePackage is a share of the resources in a fixed ratio, such as 2 GiB of memory for each CPU.
type ResourcePackage struct {
	PackageName string           `json:"packageName"`
	Allocatable *v1.ResourceList `json:"allocatable,omitempty"`
	Attributes  []Attribute      `json:"attributes,omitempty"`
}

// ResourcePool is a reservation: what the pods of a pool can always get, and what they can use at most.
type ResourcePool struct {
	PoolName       string           `json:"poolName"`
	MinAllocatable *v1.ResourceList `json:"minAllocatable,omitempty"`
	MaxAllocatable *v1.ResourceList `json:"maxAllocatable,omitempty"`
	Attributes     []Attribute      `json:"attributes,omitempty"`
}

// Attribute is a name with a value.
type Attribute struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Allocation is what one consumer uses of a zone.
type Allocation struct {
	// Consumer is namespace/name/UID of a pod.
	Consumer string           `json:"consumer"`
	Requests *v1.ResourceList `json:"requests,omitempty"`
}

// Sibling is the relation of a zone to another one, such as the distance of two NUMA nodes.
type Sibling struct {
	Type       TopologyType `json:"type"`
	Name       string       `json:"name"`
	Attributes []Attribute  `json:"attributes,omitempty"`
}

// CNRCondition is a condition of a CustomNodeResource.
type CNRCondition struct {
	Type              CNRConditionType   `json:"type"`
	Status            v1.ConditionStatus `json:"status"`
	LastHeartbeatTime metav1.Time        `json:"lastHeartbeatTime,omitempty"`
	Reason            string             `json:"reason,omitempty"`
	Message           string             `json:"message,omitempty"`
}

// CNRConditionType is the type of a condition.
type CNRConditionType string

const (
	CNRAgentReady    CNRConditionType = "AgentReady"
	CNRAgentNotFound CNRConditionType = "AgentNotFound"
)

// NodeMetricStatus is the usage of the node at one time.
type NodeMetricStatus struct {
	UpdateTime metav1.Time     `json:"updateTime"`
	NodeMetric *NodeMetricInfo `json:"nodeMetric,omitempty"`
	// GroupMetric is the usage of the pods of each QoS level.
	GroupMetric []GroupMetricInfo `json:"groupMetric,omitempty"`
}

// NodeMetricInfo is the usage of the whole node.
type NodeMetricInfo struct {
	ResourceUsage `json:",inline"`
}

// GroupMetricInfo is the usage of the pods of a QoS level.
type GroupMetricInfo struct {
	QoSLevel      QoSLevel `json:"QoSLevel"`
	ResourceUsage `json:",inline"`
	// PodList has namespace/name of each pod that is counted.
	PodList []string `json:"podList,omitempty"`
}

// ResourceUsage is usage, in all and by NUMA node.
type ResourceUsage struct {
	NUMAUsage    []NUMAMetricInfo `json:"numaUsage,omitempty"`
	GenericUsage v1.ResourceList  `json:"genericUsage,omitempty"`
}

// NUMAMetricInfo is the usage of a NUMA node.
type NUMAMetricInfo struct {
	NUMAId int             `json:"numaId"`
	Usage  v1.ResourceList `json:"usage"`
}
