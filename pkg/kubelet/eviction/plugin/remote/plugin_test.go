package remote

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

func TestEvictPods(t *testing.T) {
	s := &server{demand: &v1alpha1.GetEvictPodsResponse{
		EvictPods: []*v1alpha1.EvictPod{
			{
				Pod: marshalled(t, podNamed("a")), Reason: "too big", ForceEvict: true,
				DeletionOptions: &v1alpha1.DeletionOptions{GracePeriodSeconds: 7}, EvictionPluginName: "another",
			},
			{Pod: marshalled(t, podNamed("b"))},
		},
		Condition: &v1alpha1.Condition{ConditionName: "Full", MetCondition: true, Effects: []string{"NoSchedule"}},
	}}
	got, err := serve(t, s).EvictPods(t.Context(), viewOf("a", "b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	want := &arbiter.Demand{
		Pods:      []arbiter.PodDemand{{UID: "a", Reason: "too big", Force: true, GraceSeconds: new(int64(7))}, {UID: "b"}},
		Condition: &arbiter.ConditionReport{Name: "Full", Met: true, Effects: []string{"NoSchedule"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if uids := uidsIn(t, s.evictRequest.GetActivePods()); !slices.Equal(uids, []types.UID{"a", "b", "c"}) {
		t.Errorf("the plugin was given the pods %v", uids)
	}
}

func TestThresholdMet(t *testing.T) {
	s := &server{threshold: &v1alpha1.ThresholdMetResponse{
		ThresholdValue: 10, ObservedValue: 12.5, ThresholdOperator: v1alpha1.ThresholdOperator_GREATER_THAN,
		MetType: v1alpha1.ThresholdMetType_HARD_MET, EvictionScope: "memory", GracePeriodSeconds: 10,
		Condition:     &v1alpha1.Condition{ConditionType: v1alpha1.ConditionType_CNR_CONDITION, ConditionName: "Full"},
		CandidatePods: [][]byte{marshalled(t, podNamed("b")), marshalled(t, podNamed("a"))},
	}}
	got, err := serve(t, s).ThresholdMet(t.Context(), viewOf("a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	want := &arbiter.Threshold{
		Kind: arbiter.Hard, Scope: "memory", Target: 10, Observed: 12.5, Grace: 10 * time.Second,
		Candidates: []types.UID{"b", "a"}, Condition: &arbiter.ConditionReport{Resource: true, Name: "Full"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if uids := uidsIn(t, s.thresholdRequest.GetActivePods()); !slices.Equal(uids, []types.UID{"a", "b"}) {
		t.Errorf("the plugin was given the pods %v", uids)
	}
}

func TestTopEvictionPods(t *testing.T) {
	for _, tc := range []struct {
		question arbiter.Question
		given    []types.UID
	}{
		{arbiter.Question{Scope: "cpu", TopN: 1}, []types.UID{"a", "b", "c"}},
		{arbiter.Question{Scope: "memory", Candidates: []types.UID{"c", "a", "gone"}}, []types.UID{"a", "c"}},
		{arbiter.Question{}, []types.UID{"a", "b", "c"}},
	} {
		s := &server{top: &v1alpha1.GetTopEvictionPodsResponse{
			TargetPods:      [][]byte{marshalled(t, podNamed("c")), marshalled(t, podNamed("a"))},
			DeletionOptions: &v1alpha1.DeletionOptions{GracePeriodSeconds: 3},
		}}
		got, err := serve(t, s).TopEvictionPods(t.Context(), viewOf("a", "b", "c"), tc.question)
		if err != nil {
			t.Fatal(err)
		}
		want := &arbiter.Reply{Question: tc.question, Pods: []types.UID{"c", "a"}, GraceSeconds: new(int64(3))}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		r := s.topRequest
		if r.GetTopN() != tc.question.TopN || r.GetEvictionScope() != tc.question.Scope {
			t.Errorf("the plugin was asked for %d pods of scope %q, want those of %+v",
				r.GetTopN(), r.GetEvictionScope(), tc.question)
		}
		if uids := uidsIn(t, r.GetActivePods()); !slices.Equal(uids, tc.given) {
			t.Errorf("the plugin was given the pods %v, want %v", uids, tc.given)
		}
	}
}

// A node without pods that plugins may name sends an empty request.
func TestNoPods(t *testing.T) {
	s := &server{demand: &v1alpha1.GetEvictPodsResponse{}}
	got, err := serve(t, s).EvictPods(t.Context(), viewOf())
	if err != nil || !reflect.DeepEqual(got, &arbiter.Demand{}) || len(s.evictRequest.GetActivePods()) != 0 {
		t.Errorf("got %+v, %v, request %v", got, err, s.evictRequest)
	}
}

// A call that a plugin does not implement is answered with the zero value, also when the host wraps the error.
func TestUnimplemented(t *testing.T) {
	implementsNothing := connect(t, &v1alpha1.EvictionPlugin_ServiceDesc, v1alpha1.UnimplementedEvictionPluginServer{})
	inner := implementsNothing.call
	wrapping := New("test", func(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error {
		if err := inner(ctx, call); err != nil {
			return errors.Join(errors.New("call failed"), err)
		}
		return nil
	}, &Encoder{})
	for _, p := range []*Plugin{implementsNothing, wrapping} {
		demand, err := p.EvictPods(t.Context(), viewOf("a"))
		if err != nil || !reflect.DeepEqual(demand, &arbiter.Demand{}) {
			t.Errorf("GetEvictPods: %+v, %v", demand, err)
		}
		threshold, err := p.ThresholdMet(t.Context(), viewOf("a"))
		if err != nil || !reflect.DeepEqual(threshold, &arbiter.Threshold{}) {
			t.Errorf("ThresholdMet: %+v, %v", threshold, err)
		}
		q := arbiter.Question{Plugin: "test", Scope: "memory"}
		reply, err := p.TopEvictionPods(t.Context(), viewOf("a"), q)
		if err != nil || !reflect.DeepEqual(reply, &arbiter.Reply{Question: q}) {
			t.Errorf("GetTopEvictionPods: %+v, %v", reply, err)
		}
	}
}

// Another error is a missing answer.
func TestErrors(t *testing.T) {
	p := serve(t, &server{err: status.Error(codes.Internal, "broken")})
	demand, err := p.EvictPods(t.Context(), viewOf("a"))
	if demand != nil || status.Code(err) != codes.Internal {
		t.Errorf("GetEvictPods: %+v, %v", demand, err)
	}
	threshold, err := p.ThresholdMet(t.Context(), viewOf("a"))
	if threshold != nil || status.Code(err) != codes.Internal {
		t.Errorf("ThresholdMet: %+v, %v", threshold, err)
	}
	reply, err := p.TopEvictionPods(t.Context(), viewOf("a"), arbiter.Question{})
	if reply != nil || status.Code(err) != codes.Internal {
		t.Errorf("GetTopEvictionPods: %+v, %v", reply, err)
	}
}

// An answer of more than 4 MiB is refused before it is decoded.
func TestAnswerTooLarge(t *testing.T) {
	p := serve(t, &server{demand: &v1alpha1.GetEvictPodsResponse{EvictPods: []*v1alpha1.EvictPod{
		{Pod: marshalled(t, podNamed("a")), Reason: strings.Repeat("x", maxMessage)},
	}}})
	demand, err := p.EvictPods(t.Context(), viewOf("a"))
	if demand != nil || status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %+v, %v", demand, err)
	}
}

// An answer that cannot be decoded fails the call, so that the host counts it.
func TestInvalidAnswersFailTheCall(t *testing.T) {
	p := serve(t, &server{threshold: &v1alpha1.ThresholdMetResponse{MetType: 3}})
	inner, failed := p.call, error(nil)
	p.call = func(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error {
		failed = inner(ctx, call)
		return failed
	}
	threshold, err := p.ThresholdMet(t.Context(), viewOf("a"))
	if threshold != nil || err == nil || !errors.Is(failed, err) {
		t.Errorf("got %+v, %v, the call %v", threshold, err, failed)
	}
}

// Older plugins implement ThresholdMet(Empty), which ignores the pods of the request, and no GetToken.
func TestThresholdMetOfOlderPlugins(t *testing.T) {
	older := grpc.ServiceDesc{
		ServiceName: "evictionplugin.v1alpha1.EvictionPlugin", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "ThresholdMet",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				if err := decode(&v1alpha1.Empty{}); err != nil {
					return nil, err
				}
				return &v1alpha1.ThresholdMetResponse{
					MetType: v1alpha1.ThresholdMetType_SOFT_MET, EvictionScope: "memory",
				}, nil
			},
		}},
	}
	got, err := connect(t, &older, struct{}{}).ThresholdMet(t.Context(), viewOf("a", "b"))
	want := &arbiter.Threshold{Kind: arbiter.Soft, Scope: "memory", LessThan: true}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// The request that is put together from encoded pods is the message of the protocol.
func TestRequestsOnTheWire(t *testing.T) {
	v, q := viewOf("a", "b"), arbiter.Question{Scope: "memory", TopN: 300}
	message := (&Encoder{}).question(v, &q)
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&v1alpha1.GetTopEvictionPodsRequest{
		ActivePods: [][]byte{marshalled(t, v.Pods[0]), marshalled(t, v.Pods[1])}, TopN: 300, EvictionScope: "memory",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := message.Materialize(); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}
