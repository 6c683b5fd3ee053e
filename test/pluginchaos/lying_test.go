package pluginchaos

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
)

// lying answers with bytes that another function makes, from the pods of the request.
type lying struct {
	v1alpha1.UnimplementedEvictionPluginServer
	evict, threshold, top func(call int, pods [][]byte) ([]byte, error)
	out                   *output

	mu    sync.Mutex
	calls int
}

func (p *lying) lie(f func(int, [][]byte) ([]byte, error), pods [][]byte) ([]byte, error) {
	if f == nil {
		return nil, nil
	}
	p.out.did("lie")
	p.mu.Lock()
	p.calls++
	call := p.calls
	p.mu.Unlock()
	return f(call, pods)
}

func (p *lying) GetEvictPods(
	_ context.Context, r *v1alpha1.GetEvictPodsRequest,
) (*v1alpha1.GetEvictPodsResponse, error) {
	encoded, err := p.lie(p.evict, r.ActivePods)
	answer := &v1alpha1.GetEvictPodsResponse{}
	answer.ProtoReflect().SetUnknown(encoded)
	return answer, err
}

func (p *lying) ThresholdMet(
	ctx context.Context, r *v1alpha1.GetThresholdMetRequest,
) (*v1alpha1.ThresholdMetResponse, error) {
	encoded, err := p.lie(p.threshold, r.ActivePods)
	if err != nil {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("large", largeText()))
	}
	answer := &v1alpha1.ThresholdMetResponse{}
	answer.ProtoReflect().SetUnknown(encoded)
	return answer, err
}

func (p *lying) GetTopEvictionPods(
	_ context.Context, r *v1alpha1.GetTopEvictionPodsRequest,
) (*v1alpha1.GetTopEvictionPodsResponse, error) {
	encoded, err := p.lie(p.top, r.ActivePods)
	answer := &v1alpha1.GetTopEvictionPodsResponse{}
	answer.ProtoReflect().SetUnknown(encoded)
	return answer, err
}

// lyingName is the name of a lying plugin. baitPrefix is that of the pods that it may name, and names.
func lyingName(i int) string  { return fmt.Sprintf("lying-%d", i) }
func baitPrefix(i int) string { return fmt.Sprintf("bait-%d-", i) }

// lyingPlugins also register under the name of a plugin in the agent and under that of a crashing plugin.
func lyingPlugins(directory string, out *output, stop <-chan struct{}, running *sync.WaitGroup) {
	for i, p := range []*lying{
		{evict: foreignPods, top: protectedPods},
		{evict: extremeGraces, threshold: unknownEnums},
		{evict: manyConditions, threshold: manyConditions},
		{evict: largeAnswers, threshold: largeErrors},
		{evict: brokenAnswers, threshold: brokenThresholds, top: protectedPods},
	} {
		p.out = out
		name := lyingName(i)
		repeat(stop, running, func(round int) {
			r := &registrar{name: name}
			if i < 2 && round%2 == 1 {
				r.name = []string{inTree, stolen["1"]}[i]
			}
			instance := serve(socketOf(directory, name), r, p, nil)
			pause(stop, 5*time.Second)
			instance.stop()
			pause(stop, 50*time.Millisecond)
		})
	}
}

// field appends a length-delimited field.
func field(message []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), value)
}

func varint(message []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(message, number, protowire.VarintType), value)
}

// podOf encodes a pod that has nothing but a UID.
func podOf(uid string) []byte { return field(nil, 1, field(nil, 5, []byte(uid))) }

// demandOf encodes an EvictPod with a forged name of its plugin.
func demandOf(pod []byte, reason string, grace uint64) []byte {
	demand := field(field(nil, 1, pod), 2, []byte(reason))
	demand = field(demand, 3, varint(nil, 1, grace))
	return field(varint(demand, 4, 1), 5, []byte(honestName(0)))
}

// visible returns the first pod of a request whose name has a prefix.
func visible(pods [][]byte, prefix string) []byte {
	for _, encoded := range pods {
		var pod v1.Pod
		if pod.Unmarshal(encoded) == nil && strings.HasPrefix(pod.Name, prefix) {
			return encoded
		}
	}
	return nil
}

// minusOne is -1 as a varint.
const minusOne = math.MaxUint64

// foreignPods names pods that are not there, pods that no plugin may name, and a valid one.
func foreignPods(call int, pods [][]byte) (answer []byte, _ error) {
	for i := range 600 {
		answer = field(answer, 1, demandOf(podOf(fmt.Sprintf("foreign-%d-%d", call, i)), "foreign", minusOne))
	}
	front := []byte(nil)
	for _, uid := range protected {
		front = field(front, 1, demandOf(podOf(uid), "protected", 0))
	}
	return append(withBait(front, 0, pods, minusOne), answer...), nil
}

func withBait(answer []byte, i int, pods [][]byte, grace uint64) []byte {
	if bait := visible(pods, baitPrefix(i)); bait != nil {
		answer = field(answer, 1, demandOf(bait, "bait", grace))
	}
	return answer
}

// extremeGraces has the longest grace period, and reasons that are no UTF-8.
func extremeGraces(_ int, pods [][]byte) ([]byte, error) {
	answer := withBait(nil, 1, pods, math.MaxInt64)
	return field(answer, 1, demandOf(podOf("\xff\xfe"), strings.Repeat("\xf0\x9f", 5000), math.MaxInt64)), nil
}

func unknownEnums(call int, _ [][]byte) ([]byte, error) {
	answer := varint(varint(nil, 3, 77), 4, uint64(call%5)<<30)
	return field(answer, 7, varint(field(nil, 3, []byte("c")), 1, 99)), nil
}

// manyConditions has 100,000 conditions, the last of which is valid and a different one each time.
func manyConditions(call int, _ [][]byte) ([]byte, error) {
	last := field(varint(nil, 4, 1), 3, fmt.Appendf(nil, "Lie-%d", call))
	return append(field(bytes.Clone(tooManyConditions()), 2, last), field(nil, 7, last)...), nil
}

var tooManyConditions = sync.OnceValue(func() (answer []byte) {
	for i := range 50_000 {
		c := field(varint(nil, 4, 1), 3, fmt.Appendf(nil, "C%d", i))
		answer = field(field(answer, 2, c), 7, c)
	}
	return answer
})

// What the process of the plugins has, and that of the test does not.
var (
	largeAnswer = sync.OnceValue(func() []byte { return make([]byte, 64<<20) })
	// tooManyPods are 4 MiB of pods without UIDs.
	tooManyPods = sync.OnceValue(func() []byte { return bytes.Repeat(field(nil, 1, nil), 2<<20-8) })
	largeText   = sync.OnceValue(func() string { return strings.Repeat("x", 8<<20) })
)

// largeAnswers alternates between 64 MiB, 4 MiB of pods, and a valid answer, so that its calls are not suspended.
func largeAnswers(call int, pods [][]byte) ([]byte, error) {
	switch call % 3 {
	case 0:
		return largeAnswer(), nil
	case 1:
		return tooManyPods(), nil
	default:
		return withBait(nil, 3, pods, 1), nil
	}
}

// largeErrors alternates between a valid answer and an error with 16 MiB of text.
func largeErrors(call int, _ [][]byte) ([]byte, error) {
	if call%2 == 0 {
		return nil, nil
	}
	return nil, status.Error(codes.Internal, largeText())
}

// brokenAnswers are no messages, except for each third one.
func brokenAnswers(call int, pods [][]byte) ([]byte, error) {
	switch call % 3 {
	case 0:
		return bytes.Repeat([]byte{0xff}, 1000), nil
	case 1:
		return varint(varint(nil, 1, 7), 2, 9), nil
	default:
		broken := field(nil, 1, field(nil, 1, []byte("\x0a\xff\xff")))
		return withBait(broken, 4, pods, 0), nil
	}
}

// brokenThresholds is a hard threshold without numbers and with candidates that no plugin may name, or no message.
func brokenThresholds(call int, pods [][]byte) ([]byte, error) {
	if call%4 == 0 {
		return []byte{0x39, 0x00}, nil
	}
	answer := varint(field(nil, 5, []byte("scope\x00\xff ")), 4, uint64(v1alpha1.ThresholdMetType_HARD_MET))
	answer = protowire.AppendTag(answer, 1, protowire.Fixed64Type)
	answer = protowire.AppendFixed64(answer, math.Float64bits(math.NaN()))
	answer = varint(answer, 6, minusOne)
	if call%2 == 0 {
		for _, uid := range protected {
			answer = field(answer, 8, podOf(uid))
		}
		if bait := visible(pods, baitPrefix(4)); bait != nil {
			answer = field(answer, 8, bait)
		}
	}
	return answer, nil
}

// protectedPods answers a question with pods that no plugin may name, then with a valid one.
func protectedPods(_ int, pods [][]byte) (answer []byte, _ error) {
	for _, uid := range protected {
		answer = field(answer, 1, podOf(uid))
	}
	if bait := visible(pods, baitPrefix(4)); bait != nil {
		answer = field(answer, 1, bait)
	}
	return field(answer, 2, varint(nil, 1, minusOne)), nil
}
