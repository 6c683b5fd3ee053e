package remote

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
)

// Call runs a function with the connection to a plugin, within the time limit of ctx, and returns its error.
type Call func(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error

// Plugin is an eviction plugin behind a socket.
type Plugin struct {
	name    string
	call    Call
	encoder *Encoder
}

var _ plugin.Plugin = (*Plugin)(nil)

// New returns the plugin of that name. All remote plugins share one encoder.
func New(name string, call Call, encoder *Encoder) *Plugin {
	register()
	return &Plugin{name: name, call: call, encoder: encoder}
}

// EvictPods calls GetEvictPods.
func (p *Plugin) EvictPods(ctx context.Context, v *plugin.View) (*arbiter.Demand, error) {
	request := messageWith(p.encoder.of(v).pods)
	return invoke(ctx, p, v1alpha1.EvictionPlugin_GetEvictPods_FullMethodName, request, demandOf)
}

// ThresholdMet calls ThresholdMet.
func (p *Plugin) ThresholdMet(ctx context.Context, v *plugin.View) (*arbiter.Threshold, error) {
	request := messageWith(p.encoder.of(v).pods)
	return invoke(ctx, p, v1alpha1.EvictionPlugin_ThresholdMet_FullMethodName, request, thresholdOf)
}

// TopEvictionPods calls GetTopEvictionPods with the candidates of the question and their records, or with all pods if
// it has none.
func (p *Plugin) TopEvictionPods(
	ctx context.Context, v *plugin.View, q arbiter.Question,
) (*arbiter.Reply, error) {
	request := p.encoder.question(v, &q)
	reply, err := invoke(ctx, p, v1alpha1.EvictionPlugin_GetTopEvictionPods_FullMethodName, request, replyOf)
	if err != nil {
		return nil, err
	}
	reply.Question = q
	return reply, nil
}

// question returns the request GetTopEvictionPods.
func (e *Encoder) question(v *plugin.View, q *arbiter.Question) mem.BufferSlice {
	pods := e.of(v).only(q.Candidates)
	request := append(messageWith(pods), questionFields(q))
	return append(request, recordFields(pods, v.Records, maxMessage-request.Len()))
}

// questionFields encodes topN and eviction_scope of GetTopEvictionPodsRequest. Fields with the zero value are absent.
func questionFields(q *arbiter.Question) mem.SliceBuffer {
	var encoded []byte
	if q.TopN != 0 {
		encoded = protowire.AppendTag(encoded, 2, protowire.VarintType)
		encoded = protowire.AppendVarint(encoded, q.TopN)
	}
	if q.Scope != "" {
		encoded = protowire.AppendTag(encoded, 3, protowire.BytesType)
		encoded = protowire.AppendString(encoded, q.Scope)
	}
	return encoded
}

// invoke sends a request and decodes the answer. It returns the zero value if the plugin does not implement the method.
// The answer is decoded within the call, so that one that cannot be decoded is a failed call.
func invoke[T any](
	ctx context.Context, p *Plugin, method string, request mem.BufferSlice, decode func([]byte) (*T, leftOut, error),
) (*T, error) {
	var decoded *T
	err := p.call(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		var answer []byte
		err := conn.Invoke(ctx, method, request, &answer,
			grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage))
		if err != nil {
			return err
		}
		var left leftOut
		decoded, left, err = decode(answer)
		p.count(left)
		return err
	})
	if status.Code(err) == codes.Unimplemented {
		return new(T), nil
	}
	if err != nil {
		return nil, err
	}
	return decoded, nil
}

// count counts the parts of an answer that were left out.
func (p *Plugin) count(left leftOut) {
	for part, n := range left {
		partsLeftOut.WithLabelValues(string(part)).Add(float64(n))
		klog.V(4).InfoS("Part of an eviction plugin's answer is left out", "plugin", p.name, "part", part, "count", n)
	}
}
