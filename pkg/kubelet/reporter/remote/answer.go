package remote

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// maxMessage is the greatest size of a message in bytes. The encoding of an answer within the limits is a little longer
// than its names and values.
const maxMessage = merge.MaxAnswerBytes + 64<<10

// Numbers of fields in the protocol.
const (
	contentNumber = 1 // GetReportContentResponse.content
	fieldNumber   = 2 // ReportContent.field
)

// answer is a message of a plugin as codec decodes it.
type answer struct {
	contents []merge.Content
	size     int
	// err is why the contents could not be decoded.
	err error
}

// codec decodes answers. On the wire it is the codec proto. All requests are empty.
type codec struct{}

var _ encoding.CodecV2 = codec{}

func (codec) Name() string { return "proto" }

// Marshal returns the encoding of Empty.
func (codec) Marshal(any) (mem.BufferSlice, error) { return nil, nil }

// Unmarshal takes an *answer. An error of decoding is in the answer, where it keeps its type.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	a, ok := v.(*answer)
	if !ok {
		return fmt.Errorf("%T takes no answer", v)
	}
	message := data.Materialize()
	a.size = len(message)
	a.contents, a.err = decode(message)
	return nil
}

func decode(message []byte) ([]merge.Content, error) {
	if err := checkCounts(message); err != nil {
		return nil, err
	}
	response := &v1alpha1.GetReportContentResponse{}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(message, response); err != nil {
		return nil, err
	}
	contents := make([]merge.Content, len(response.Content))
	for i, c := range response.Content {
		kind := c.GetGroupVersionKind()
		contents[i].Kind = schema.GroupVersionKind{
			Group: kind.GetGroup(), Version: kind.GetVersion(), Kind: kind.GetKind(),
		}
		contents[i].Fields = make([]merge.ReportField, len(c.GetField()))
		for j, f := range c.GetField() {
			contents[i].Fields[j] = merge.ReportField{
				Part: merge.Part(f.GetFieldType()), Name: f.GetFieldName(), Value: f.GetValue(),
			}
		}
	}
	return contents, nil
}

// checkCounts returns an error for a message with too many contents or fields.
func checkCounts(message []byte) error {
	contents, fields := 0, 0
	return eachPart(message, contentNumber, func(content []byte) error {
		if contents++; contents > merge.MaxContents {
			return fmt.Errorf("%w: more than %d contents", reporter.ErrTooLarge, merge.MaxContents)
		}
		return eachPart(content, fieldNumber, func([]byte) error {
			if fields++; fields > merge.MaxFields {
				return fmt.Errorf("%w: more than %d fields", reporter.ErrTooLarge, merge.MaxFields)
			}
			return nil
		})
	})
}

var errInvalid = errors.New("the message is not valid")

// eachPart calls do for each part of a message that has the number and is of variable length.
func eachPart(message []byte, number protowire.Number, do func([]byte) error) error {
	for len(message) > 0 {
		n, typ, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return errInvalid
		}
		size := protowire.ConsumeFieldValue(n, typ, message[tag:])
		if size < 0 {
			return errInvalid
		}
		if n == number && typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[tag:])
			if err := do(value); err != nil {
				return err
			}
		}
		message = message[tag+size:]
	}
	return nil
}
