//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

var appLabels = map[string]string{"app": "web"}

func appTemplate() v1.PodTemplateSpec {
	pod := kit.IdlePod("")
	return v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: appLabels}, Spec: pod.Spec}
}

func appSelector() *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: appLabels} }

func TestDeploymentReplacesADeletedPod(t *testing.T) {
	s := parallelSpace(t)
	deployments := s.client.AppsV1().Deployments(s.name)
	_, err := deployments.Create(s.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: appSelector(), Template: appTemplate()},
	}, metav1.CreateOptions{})
	s.must(err)
	available := func(ctx context.Context) error {
		got, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		if err == nil && got.Status.AvailableReplicas != 3 {
			err = fmt.Errorf("%d of 3 replicas are available", got.Status.AvailableReplicas)
		}
		return err
	}
	s.eventually(podTimeout, available)
	pods, err := s.client.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{})
	s.must(err)
	s.remove(&pods.Items[0])
	s.eventually(podTimeout, available)
}

func TestStatefulSetStartsPodsInOrder(t *testing.T) {
	s := parallelSpace(t)
	sets := s.client.AppsV1().StatefulSets(s.name)
	_, err := sets.Create(s.ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: appSelector(), Template: appTemplate(), ServiceName: "db",
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := sets.Get(ctx, "db", metav1.GetOptions{})
		if err == nil && got.Status.ReadyReplicas != 2 {
			err = fmt.Errorf("%d of 2 replicas are ready", got.Status.ReadyReplicas)
		}
		return err
	})
	first, second := s.get("db-0"), s.get("db-1")
	if second.Status.StartTime.Before(first.Status.StartTime) {
		t.Errorf("db-1 started at %v, before db-0 at %v", second.Status.StartTime, first.Status.StartTime)
	}
	s.expect("host name", s.sh(first, "hostname"), "db-0")
}

func TestDaemonSetRunsOnTheNode(t *testing.T) {
	s := parallelSpace(t)
	sets := s.client.AppsV1().DaemonSets(s.name)
	_, err := sets.Create(s.ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec:       appsv1.DaemonSetSpec{Selector: appSelector(), Template: appTemplate()},
	}, metav1.CreateOptions{})
	s.must(err)
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := sets.Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && (got.Status.NumberReady != 1 || got.Status.DesiredNumberScheduled != 1) {
			err = fmt.Errorf("%d of %d pods are ready", got.Status.NumberReady, got.Status.DesiredNumberScheduled)
		}
		return err
	})
	pods, err := s.client.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{})
	s.must(err)
	s.expect("node", pods.Items[0].Spec.NodeName, cluster.NodeName)
}

func TestJobRunsToCompletion(t *testing.T) {
	s := parallelSpace(t)
	jobs := s.client.BatchV1().Jobs(s.name)
	template := appTemplate()
	template.Spec.RestartPolicy = v1.RestartPolicyNever
	template.Spec.Containers[0] = kit.Container("main", "echo done")
	_, err := jobs.Create(s.ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "once"},
		Spec:       batchv1.JobSpec{Completions: new(int32(3)), Parallelism: new(int32(2)), Template: template},
	}, metav1.CreateOptions{})
	s.must(err)
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := jobs.Get(ctx, "once", metav1.GetOptions{})
		if err == nil && got.Status.Succeeded != 3 {
			err = fmt.Errorf("%d of 3 pods succeeded", got.Status.Succeeded)
		}
		return err
	})
}
