package remote

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/types"
)

// Numbers of fields in k8s.io.api.core.v1.Pod and k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta.
const (
	podMetadata = 1
	metadataUID = 5
)

// maxUID is the greatest length of a UID, in bytes. The API server makes UIDs of 36, the kubelet those of 32 for static
// pods.
const maxUID = 128

var errNoUID = errors.New("the pod has no UID of at most 128 bytes")

// podUID returns the UID in an encoded Pod. Nothing else of a pod that a plugin returns counts (E7), so that nothing
// else is decoded.
func podUID(pod []byte) (uid types.UID, err error) {
	err = fields(pod, func(number protowire.Number, typ protowire.Type, metadata, _ []byte) error {
		if number != podMetadata {
			return nil
		}
		if typ != protowire.BytesType {
			return errWireType
		}
		return fields(metadata, func(number protowire.Number, typ protowire.Type, value, _ []byte) error {
			if number != metadataUID {
				return nil
			}
			if typ != protowire.BytesType {
				return errWireType
			}
			if len(value) > maxUID || !utf8.Valid(value) {
				return errNoUID
			}
			uid = types.UID(value)
			return nil
		})
	})
	if err == nil && uid == "" {
		err = errNoUID
	}
	if err != nil {
		return "", err
	}
	return uid, nil
}
