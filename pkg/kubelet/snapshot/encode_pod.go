package snapshot

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/strictjson"
)

// encodedPod has the fields of a pod's API object and the others side by side. An amount that is unknown is left out.
type encodedPod struct {
	*encodedFacts
	Usage       *encodedUsage       `json:"usage,omitempty"`
	Cgroup      *encodedMemory      `json:"cgroup,omitempty"`
	MemoryRate  *Rate               `json:"memoryRate,omitempty"`
	Images      *Bytes              `json:"imageBytes,omitempty"`
	Terminating *encodedTermination `json:"terminating,omitempty"`
}

// encodedFacts has the fields of Facts, so that one converts to the other.
type encodedFacts struct {
	UID                types.UID         `json:"uid"`
	Namespace          string            `json:"namespace"`
	Name               string            `json:"name"`
	ResourceVersion    string            `json:"resourceVersion,omitzero"`
	Created            time.Time         `json:"created,omitzero"`
	OwnerKind          string            `json:"ownerKind,omitzero"`
	Priority           int32             `json:"priority"`
	QOS                v1.PodQOSClass    `json:"qosClass"`
	Static             bool              `json:"static,omitzero"`
	Critical           bool              `json:"critical,omitzero"`
	Overhead           bool              `json:"overhead,omitzero"`
	GracePeriodSeconds *int64            `json:"gracePeriodSeconds,omitempty"`
	MemoryRequest      Bytes             `json:"memoryRequestBytes,omitzero"`
	StorageRequest     Bytes             `json:"storageRequestBytes,omitzero"`
	PodLevelMemory     *Quantity         `json:"podLevelMemoryRequest,omitempty"`
	Containers         []ContainerFacts  `json:"containers,omitzero"`
	Volumes            []string          `json:"volumes,omitzero"`
	MemoryVolumes      []string          `json:"memoryVolumes,omitzero"`
	Limits             *StorageLimits    `json:"localStorageLimits,omitempty"`
	Annotations        map[string]string `json:"annotations,omitzero"`
}

type encodedTermination struct {
	Deadline time.Time `json:"deadline,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (p Pod) MarshalJSON() ([]byte, error) {
	return json.Marshal(encodedPod{
		encodedFacts: (*encodedFacts)(p.Facts), Usage: encodeUsage(p.Usage), Cgroup: (*encodedMemory)(p.Cgroup),
		MemoryRate: p.MemoryRate, Images: known(p.Images), Terminating: (*encodedTermination)(p.Terminating),
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Pod) UnmarshalJSON(data []byte) error {
	e := encodedPod{encodedFacts: &encodedFacts{}}
	err := strictjson.Decode(data, &e)
	*p = Pod{
		Facts: (*Facts)(e.encodedFacts), Usage: e.Usage.decode(), Cgroup: (*Memory)(e.Cgroup),
		MemoryRate: e.MemoryRate, Images: orUnknown(e.Images), Terminating: (*Termination)(e.Terminating),
	}
	return err
}

// encodedRate has the fields of Rate.
type encodedRate struct {
	PerSecond Bytes         `json:"bytesPerSecond"`
	Window    time.Duration `json:"windowNanoseconds"`
	Still     bool          `json:"still,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (r Rate) MarshalJSON() ([]byte, error) { return json.Marshal(encodedRate(r)) }

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rate) UnmarshalJSON(data []byte) error { return strictjson.Decode(data, (*encodedRate)(r)) }

// encodedContainerFacts has the fields of ContainerFacts.
type encodedContainerFacts struct {
	Name           string   `json:"name"`
	MemoryRequest  Quantity `json:"memoryRequest,omitzero"`
	StorageRequest Quantity `json:"storageRequest,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (c ContainerFacts) MarshalJSON() ([]byte, error) { return json.Marshal(encodedContainerFacts(c)) }

// UnmarshalJSON implements json.Unmarshaler.
func (c *ContainerFacts) UnmarshalJSON(data []byte) error {
	return strictjson.Decode(data, (*encodedContainerFacts)(c))
}

// encodedStorageLimits has the fields of StorageLimits.
type encodedStorageLimits struct {
	EmptyDirs  []NamedLimit `json:"emptyDirs,omitzero"`
	Pod        *Quantity    `json:"pod,omitempty"`
	Containers []NamedLimit `json:"containers,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (l StorageLimits) MarshalJSON() ([]byte, error) { return json.Marshal(encodedStorageLimits(l)) }

// UnmarshalJSON implements json.Unmarshaler.
func (l *StorageLimits) UnmarshalJSON(data []byte) error {
	return strictjson.Decode(data, (*encodedStorageLimits)(l))
}

// encodedNamedLimit has the fields of NamedLimit.
type encodedNamedLimit struct {
	Name  string   `json:"name"`
	Limit Quantity `json:"limit"`
}

// MarshalJSON implements json.Marshaler.
func (l NamedLimit) MarshalJSON() ([]byte, error) { return json.Marshal(encodedNamedLimit(l)) }

// UnmarshalJSON implements json.Unmarshaler.
func (l *NamedLimit) UnmarshalJSON(data []byte) error {
	return strictjson.Decode(data, (*encodedNamedLimit)(l))
}

// encodedQuantity has the fields of Quantity.
type encodedQuantity struct {
	Amount Bytes  `json:"bytes"`
	Text   string `json:"text"`
}

// MarshalJSON implements json.Marshaler.
func (q Quantity) MarshalJSON() ([]byte, error) { return json.Marshal(encodedQuantity(q)) }

// UnmarshalJSON implements json.Unmarshaler.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	return strictjson.Decode(data, (*encodedQuantity)(q))
}

// encodedMemory has the fields of Memory.
type encodedMemory struct {
	WorkingSet Value[Bytes] `json:"workingSetBytes,omitzero"`
	Anonymous  Value[Bytes] `json:"anonymousBytes,omitzero"`
	Processes  Value[PIDs]  `json:"processes,omitzero"`
}

// encodedValue has the fields of Value.
type encodedValue[T Amount] struct {
	Amount T         `json:"amount"`
	At     time.Time `json:"at,omitzero"`
	Known  bool      `json:"known"`
}

// MarshalJSON implements json.Marshaler.
func (v Value[T]) MarshalJSON() ([]byte, error) { return json.Marshal(encodedValue[T](v)) }

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value[T]) UnmarshalJSON(data []byte) error {
	return strictjson.Decode(data, (*encodedValue[T])(v))
}

type encodedUsage struct {
	Memory          *Bytes                  `json:"memoryBytes,omitempty"`
	AnonymousMemory *Bytes                  `json:"anonymousMemoryBytes,omitempty"`
	MemoryDate      int64                   `json:"memoryDateUnixNanoseconds,omitzero"`
	PIDs            *PIDs                   `json:"pids,omitempty"`
	LocalStorage    *Bytes                  `json:"localStorageBytes,omitempty"`
	Containers      []encodedContainerUsage `json:"containers,omitzero"`
	Volumes         []encodedVolumeUsage    `json:"volumes,omitzero"`
}

type encodedContainerUsage struct {
	Name          string         `json:"name"`
	Memory        *Bytes         `json:"memoryBytes,omitempty"`
	WritableLayer encodedFsUsage `json:"writableLayer,omitzero"`
	Logs          encodedFsUsage `json:"logs,omitzero"`
}

type encodedVolumeUsage struct {
	Name string `json:"name"`
	encodedFsUsage
}

type encodedFsUsage struct {
	Bytes  *Bytes  `json:"bytes,omitempty"`
	Inodes *Inodes `json:"inodes,omitempty"`
}

func encodeUsage(u *Usage) *encodedUsage {
	if u == nil {
		return nil
	}
	return &encodedUsage{
		Memory: known(u.Memory), AnonymousMemory: known(u.AnonymousMemory), MemoryDate: u.MemoryDate,
		PIDs: known(u.PIDs), LocalStorage: known(u.LocalStorage),
		Containers: converted(u.Containers, func(c *ContainerUsage) encodedContainerUsage {
			return encodedContainerUsage{
				Name: c.Name, Memory: known(c.Memory), WritableLayer: encodeFs(c.WritableLayer), Logs: encodeFs(c.Logs),
			}
		}),
		Volumes: converted(u.Volumes, func(v *VolumeUsage) encodedVolumeUsage {
			return encodedVolumeUsage{Name: v.Name, encodedFsUsage: encodeFs(v.FsUsage)}
		}),
	}
}

func (e *encodedUsage) decode() *Usage {
	if e == nil {
		return nil
	}
	return &Usage{
		Memory: orUnknown(e.Memory), AnonymousMemory: orUnknown(e.AnonymousMemory), MemoryDate: e.MemoryDate,
		PIDs: orUnknown(e.PIDs), LocalStorage: orUnknown(e.LocalStorage),
		Containers: converted(e.Containers, func(c *encodedContainerUsage) ContainerUsage {
			return ContainerUsage{
				Name: c.Name, Memory: orUnknown(c.Memory), WritableLayer: c.WritableLayer.decode(), Logs: c.Logs.decode(),
			}
		}),
		Volumes: converted(e.Volumes, func(v *encodedVolumeUsage) VolumeUsage {
			return VolumeUsage{Name: v.Name, FsUsage: v.decode()}
		}),
	}
}

func encodeFs(u FsUsage) encodedFsUsage {
	return encodedFsUsage{Bytes: known(u.Bytes), Inodes: known(u.Inodes)}
}

func (e *encodedFsUsage) decode() FsUsage {
	return FsUsage{Bytes: orUnknown(e.Bytes), Inodes: orUnknown(e.Inodes)}
}

// known points to an amount, nil if it is Unknown.
func known[T Amount](amount T) *T {
	if amount == Unknown {
		return nil
	}
	return &amount
}

func orUnknown[T Amount](amount *T) T {
	if amount == nil {
		return Unknown
	}
	return *amount
}

// converted converts each element of a list. A list that is nil stays nil.
func converted[From, To any](list []From, convert func(*From) To) []To {
	if list == nil {
		return nil
	}
	result := make([]To, len(list))
	for i := range list {
		result[i] = convert(&list[i])
	}
	return result
}
