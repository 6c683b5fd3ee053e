package plugins

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
)

// server is a process at a socket that has a plugin.
type server struct {
	registration.UnimplementedRegistrationServer
	name, socket string
	versions     []string
	statuses     chan *registration.RegistrationStatus

	listener *net.UnixListener
	server   *grpc.Server
	served   sync.WaitGroup
}

// serve begins to serve a plugin at a socket, until the end of the test at most.
func serve(t *testing.T, socket, name string, service v1alpha1.EvictionPluginServer, versions ...string) *server {
	t.Helper()
	return serveDesc(t, socket, name, &v1alpha1.EvictionPlugin_ServiceDesc, service, versions...)
}

// serveDesc is serve for a service of another description.
func serveDesc(t *testing.T, socket, name string, d *grpc.ServiceDesc, service any, versions ...string) *server {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if len(versions) == 0 {
		versions = []string{"v1alpha1"}
	}
	s := &server{
		name: name, socket: socket, versions: versions, listener: listener, server: grpc.NewServer(),
		statuses: make(chan *registration.RegistrationStatus, 100),
	}
	registration.RegisterRegistrationServer(s.server, s)
	s.server.RegisterService(d, service)
	s.served.Go(func() { _ = s.server.Serve(listener) })
	t.Cleanup(s.stop)
	return s
}

// stop ends the process and removes its socket.
func (s *server) stop() {
	s.server.Stop()
	s.served.Wait()
}

// crash ends the process and leaves the socket.
func (s *server) crash() {
	s.listener.SetUnlinkOnClose(false)
	s.stop()
}

func (s *server) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "EvictionPlugin", Name: s.name, SupportedVersions: s.versions}, nil
}

func (s *server) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	select {
	case s.statuses <- status:
	default:
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// status is the result of the next registration.
func (s *server) status(t *testing.T) *registration.RegistrationStatus {
	t.Helper()
	select {
	case status := <-s.statuses:
		return status
	case <-after():
		t.Fatalf("no registration of %s", s.name)
		return nil
	}
}

// service speaks the protocol for a script.
type service struct {
	v1alpha1.UnimplementedEvictionPluginServer
	*script
}

func (s *service) GetEvictPods(
	ctx context.Context, r *v1alpha1.GetEvictPodsRequest,
) (*v1alpha1.GetEvictPodsResponse, error) {
	v, err := viewOf(r.GetActivePods())
	if err != nil {
		return nil, err
	}
	d, err := s.EvictPods(ctx, v)
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.GetEvictPodsResponse{Condition: conditionOf(d.Condition)}
	for _, p := range d.Pods {
		answer.EvictPods = append(answer.EvictPods, &v1alpha1.EvictPod{
			Pod: encoded(p.UID), Reason: p.Reason, ForceEvict: p.Force, DeletionOptions: optionsOf(p.GraceSeconds),
			EvictionPluginName: "another",
		})
	}
	return answer, nil
}

func (s *service) ThresholdMet(
	ctx context.Context, r *v1alpha1.GetThresholdMetRequest,
) (*v1alpha1.ThresholdMetResponse, error) {
	v, err := viewOf(r.GetActivePods())
	if err != nil {
		return nil, err
	}
	t, err := s.script.ThresholdMet(ctx, v)
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.ThresholdMetResponse{
		ThresholdValue: t.Target, ObservedValue: t.Observed, MetType: v1alpha1.ThresholdMetType(t.Kind),
		EvictionScope: t.Scope, GracePeriodSeconds: int64(t.Grace.Seconds()), Condition: conditionOf(t.Condition),
		CandidatePods: encodedAll(t.Candidates), ThresholdOperator: v1alpha1.ThresholdOperator_GREATER_THAN,
	}
	if t.LessThan {
		answer.ThresholdOperator = v1alpha1.ThresholdOperator_LESS_THAN
	}
	return answer, nil
}

func (s *service) GetTopEvictionPods(
	ctx context.Context, r *v1alpha1.GetTopEvictionPodsRequest,
) (*v1alpha1.GetTopEvictionPodsResponse, error) {
	v, err := viewOf(r.GetActivePods())
	if err != nil {
		return nil, err
	}
	v.Records = recordsOf(r.GetCandidateEvictionRecords())
	reply, err := s.TopEvictionPods(ctx, v, arbiter.Question{Scope: r.GetEvictionScope(), TopN: r.GetTopN()})
	if err != nil {
		return nil, err
	}
	return &v1alpha1.GetTopEvictionPodsResponse{
		TargetPods: encodedAll(reply.Pods), DeletionOptions: optionsOf(reply.GraceSeconds),
	}, nil
}

// viewOf decodes the pods of a request, which have what plugins may see.
func viewOf(active [][]byte) (*plugin.View, error) {
	v := &plugin.View{}
	for _, data := range active {
		var pod v1.Pod
		if err := pod.Unmarshal(data); err != nil {
			return nil, err
		}
		if len(pod.Spec.Containers) == 0 || len(pod.Spec.Containers[0].Env) > 0 {
			return nil, errors.New("the pod of a request has no container, or an environment")
		}
		v.Pods = append(v.Pods, &pod)
	}
	return v, nil
}

// recordsOf decodes eviction records.
func recordsOf(list []*v1alpha1.EvictionRecord) map[types.UID]records.Record {
	of := map[types.UID]records.Record{}
	for _, m := range list {
		r := records.Record{UID: types.UID(m.GetUid())}
		for _, b := range m.GetBuckets().GetList() {
			r.Buckets = append(r.Buckets, records.Bucket{Start: time.Unix(b.GetTime(), 0).UTC(), Count: b.GetCount()})
		}
		if m.GetHasPdb() {
			r.Budget = &records.Budget{
				DisruptionsAllowed: m.GetDisruptionsAllowed(), CurrentHealthy: m.GetCurrentHealthy(),
				DesiredHealthy: m.GetDesiredHealthy(), ExpectedPods: m.GetExpectedPods(),
			}
		}
		of[r.UID] = r
	}
	return of
}

// encoded is a pod with nothing but its UID.
func encoded(uid types.UID) []byte {
	data, err := (&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}).Marshal()
	if err != nil {
		panic(err)
	}
	return data
}

func encodedAll(uids []types.UID) (list [][]byte) {
	for _, uid := range uids {
		list = append(list, encoded(uid))
	}
	return list
}

func optionsOf(seconds *int64) *v1alpha1.DeletionOptions {
	if seconds == nil {
		return nil
	}
	return &v1alpha1.DeletionOptions{GracePeriodSeconds: *seconds}
}

func conditionOf(c *arbiter.ConditionReport) *v1alpha1.Condition {
	if c == nil {
		return nil
	}
	m := &v1alpha1.Condition{ConditionName: c.Name, MetCondition: c.Met, Effects: slices.Clone(c.Effects)}
	if c.Resource {
		m.ConditionType = v1alpha1.ConditionType_CNR_CONDITION
	}
	return m
}
