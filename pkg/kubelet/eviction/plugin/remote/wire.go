package remote

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxMessage is the greatest size of a request and of an answer, in bytes. It is gRPC's default limit of what a server
// and a client receive.
const maxMessage = 4 << 20

// rawCodec passes messages as bytes: requests share the encoded pods, and answers are decoded part by part. On the wire
// it is the codec proto.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

// Marshal takes a mem.BufferSlice, whose buffers are not changed.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(mem.BufferSlice)
	if !ok {
		return nil, fmt.Errorf("%T is no encoded message", v)
	}
	return message, nil
}

// Unmarshal takes a *[]byte.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T takes no encoded message", v)
	}
	*message = data.Materialize()
	return nil
}

var errWireType = errors.New("the field has another type")

// fields calls do for each field of a message: the value of a length-delimited field, or else nil, and the field with
// its tag.
func fields(message []byte, do func(number protowire.Number, typ protowire.Type, value, whole []byte) error) error {
	for len(message) > 0 {
		number, typ, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		var value []byte
		var size int
		if typ == protowire.BytesType {
			value, size = protowire.ConsumeBytes(message[tag:])
		} else {
			size = protowire.ConsumeFieldValue(number, typ, message[tag:])
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := do(number, typ, value, message[:tag+size]); err != nil {
			return err
		}
		message = message[tag+size:]
	}
	return nil
}
