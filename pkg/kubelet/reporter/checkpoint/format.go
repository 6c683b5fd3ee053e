package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager/checksum"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// formatVersion is that of the data. A file of another version is not used.
const formatVersion = 1

// file is the content of the file. Data is the JSON of a data, as text: the checksum of stock depends on the Go type of
// what it is computed of.
type file struct {
	Data     string
	Checksum checksum.Checksum
}

var _ checkpointmanager.Checkpoint = (*file)(nil)

// MarshalCheckpoint sets the checksum and returns the content of the file.
func (f *file) MarshalCheckpoint() ([]byte, error) {
	f.Checksum = checksum.New(f.Data)
	return json.Marshal(f)
}

// UnmarshalCheckpoint reads the content of the file.
func (f *file) UnmarshalCheckpoint(blob []byte) error { return unmarshal(blob, f) }

// VerifyChecksum returns an error if the checksum is not that of the data.
func (f *file) VerifyChecksum() error { return f.Checksum.Verify(f.Data) }

type data struct {
	Version int      `json:"version"`
	Answers []answer `json:"answers"`
}

type answer struct {
	Plugin string `json:"plugin"`
	// Socket is empty for a plugin in the agent.
	Socket string `json:"socket,omitempty"`
	// Received is left out of digests: a plugin gives the same answer again and again.
	Received *time.Time `json:"received,omitempty"`
	Lost     *time.Time `json:"lost,omitempty"`
	Contents []content  `json:"contents"`
}

type content struct {
	Group   string  `json:"group,omitempty"`
	Version string  `json:"version,omitempty"`
	Kind    string  `json:"kind"`
	Fields  []field `json:"fields"`
}

type field struct {
	Part  merge.Part `json:"part"`
	Name  string     `json:"name"`
	Value []byte     `json:"value"`
}

func encode(list []answers.Answer) (*file, error) {
	text, err := json.Marshal(dataOf(list, true))
	return &file{Data: string(text)}, err
}

// digest is that of answers. It is the same for equal answers, whenever they were received and confirmed.
type digest [sha256.Size]byte

func digestOf(list []answers.Answer) digest {
	text, err := json.Marshal(dataOf(list, false))
	if err != nil {
		return digest{} // times beyond the year 9999 only, with which encode fails as well
	}
	return sha256.Sum256(text)
}

func dataOf(list []answers.Answer, received bool) data {
	d := data{Version: formatVersion, Answers: make([]answer, len(list))}
	for i := range list {
		a := &list[i]
		d.Answers[i] = answer{
			Plugin: a.Plugin, Socket: a.Socket, Lost: timeOf(a.Lost), Contents: make([]content, len(a.Contents)),
		}
		if received {
			d.Answers[i].Received = timeOf(a.Received)
		}
		for j := range a.Contents {
			from := &a.Contents[j]
			to := &d.Answers[i].Contents[j]
			*to = content{
				Group: from.Kind.Group, Version: from.Kind.Version, Kind: from.Kind.Kind, Fields: make([]field, len(from.Fields)),
			}
			for k, f := range from.Fields {
				to.Fields[k] = field(f)
			}
		}
	}
	return d
}

// timeOf returns a time in UTC without its monotonic clock, nil for the zero time.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Round(0)
	return &t
}

// decode reads answers, which were confirmed last at a time. An answer that could not have been written is an error.
func decode(text string, confirmed time.Time) ([]answers.Answer, error) {
	var d data
	if err := unmarshal([]byte(text), &d); err != nil {
		return nil, err
	}
	if d.Version != formatVersion {
		return nil, fmt.Errorf("the version of the data is %d, not %d", d.Version, formatVersion)
	}
	list := make([]answers.Answer, len(d.Answers))
	for i := range d.Answers {
		a := &d.Answers[i]
		list[i] = answers.Answer{
			Key:      answers.Key{Plugin: a.Plugin, Socket: a.Socket},
			Contents: contentsOf(a.Contents), Received: valueOf(a.Received), Confirmed: confirmed, Lost: valueOf(a.Lost),
		}
		if a.Plugin == "" {
			return nil, fmt.Errorf("answer %d has no plugin", i)
		}
		if err := merge.Validate(list[i].Contents); err != nil {
			return nil, fmt.Errorf("answer %d: %w", i, err)
		}
	}
	return list, nil
}

func contentsOf(list []content) []merge.Content {
	contents := make([]merge.Content, len(list))
	for i := range list {
		from := &list[i]
		contents[i] = merge.Content{
			Kind:   schema.GroupVersionKind{Group: from.Group, Version: from.Version, Kind: from.Kind},
			Fields: make([]merge.ReportField, len(from.Fields)),
		}
		for j, f := range from.Fields {
			contents[i].Fields[j] = merge.ReportField(f)
		}
	}
	return contents
}

func valueOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// unmarshal reads one JSON value. Unknown fields, and anything after the value, are errors.
func unmarshal(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the end of the JSON")
	}
	return nil
}
