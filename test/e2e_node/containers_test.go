//go:build e2e

package e2enode

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

func fieldEnv(name, path string) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: kit.FieldRef(path)}}
}

func TestEnvironmentFromEverySource(t *testing.T) {
	s := parallelSpace(t)
	s.configMap("settings", map[string]string{"COLOR": "red", "SIZE": "9"})
	s.secret("login", map[string]string{"PASSWORD": "sesame"})
	pod := kit.Pod("env", `echo "$COLOR $P_SIZE $WORD $NAME $HOST_IP $CPUS $COMBINED $OPTIONAL. $KUBERNETES_SERVICE_HOST"`)
	main := &pod.Spec.Containers[0]
	main.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
	main.EnvFrom = []v1.EnvFromSource{
		{Prefix: "P_", ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: kit.NamedObject("settings")}},
		{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: kit.NamedObject("missing"), Optional: new(true)}},
	}
	main.Env = []v1.EnvVar{
		{Name: "COLOR", ValueFrom: &v1.EnvVarSource{
			ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: kit.NamedObject("settings"), Key: "COLOR"},
		}},
		{Name: "WORD", ValueFrom: &v1.EnvVarSource{
			SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: kit.NamedObject("login"), Key: "PASSWORD"},
		}},
		fieldEnv("NAME", "metadata.name"),
		fieldEnv("HOST_IP", "status.hostIP"),
		{Name: "CPUS", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}}},
		{Name: "COMBINED", Value: "$(COLOR)-$(NAME)-$$(NAME)"},
	}
	created := s.succeeded(pod)
	s.expectLog(created, "red 9 sesame env "+created.Status.HostIP+" 2 red-env-$(NAME) . 10.46.0.1")
}

func TestContainerWaitsForAMissingSecretKey(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("waits", "true")
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "WORD", ValueFrom: &v1.EnvVarSource{
		SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: kit.NamedObject("late"), Key: "word"},
	}}}
	created := s.wait(s.create(pod), podTimeout, waitingFor("CreateContainerConfigError"))
	s.secret("late", map[string]string{"word": "now"})
	s.wait(created, slowTimeout, ended(v1.PodSucceeded))
}

func TestHostsFileAndNames(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("names", "hostname; hostname -f; cat /etc/hosts")
	pod.Spec.Hostname, pod.Spec.Subdomain = "custom", "group"
	pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"alias.example.com"}}}
	created := s.succeeded(pod)
	log := s.logs(created)
	fqdn := "custom.group." + s.name + ".svc.cluster.local"
	for _, want := range []string{
		"custom\n" + fqdn + "\n", "# Kubernetes-managed hosts file.", created.Status.PodIP + "\t" + fqdn + "\tcustom",
		"192.0.2.1\talias.example.com",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in:\n%s", want, log)
		}
	}
}

func TestDNSConfig(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("dns", "cat /etc/resolv.conf")
	pod.Spec.DNSPolicy = v1.DNSNone
	pod.Spec.DNSConfig = &v1.PodDNSConfig{
		Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.com"},
		Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}},
	}
	s.expect("resolv.conf", s.logs(s.succeeded(pod)), "search example.com\nnameserver 192.0.2.53\noptions ndots:2")
}

func TestHostNetwork(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("host", "ip -o link | wc -l")
	pod.Spec.HostNetwork = true
	created := s.succeeded(pod)
	s.expect("pod address", created.Status.PodIP, created.Status.HostIP)
}

func TestSecurityContext(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("secure", "id -u; touch /x 2>/dev/null || echo read-only; "+
		"grep CapEff /proc/self/status | cut -f2; grep NoNewPrivs /proc/self/status | cut -f2")
	pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
		RunAsUser:                new(int64(1234)),
		ReadOnlyRootFilesystem:   new(true),
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
	}
	s.expectLog(s.succeeded(pod), "1234\nread-only\n0000000000000000\n1")
}

func TestResourceLimitsReachTheKernel(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("limited", "true")
	main := &pod.Spec.Containers[0]
	main.Image, main.Command = "localhost/hog:1", nil
	main.Args = []string{"--start=200", "--limit=200"}
	main.Resources.Limits = kit.Memory("64Mi")
	created := s.wait(s.create(pod), podTimeout, ended(v1.PodFailed))
	status, err := container(created, "main")
	s.must(err)
	if ended := status.State.Terminated; ended == nil || ended.Reason != "OOMKilled" || ended.ExitCode != 137 {
		t.Errorf("a container that used more than its limit: %s", kit.Describe(created))
	}
}

func TestTerminationMessage(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("message", "echo -n farewell > /dev/termination-log; exit 4")
	created := s.wait(s.create(pod), podTimeout, ended(v1.PodFailed))
	status, err := container(created, "main")
	s.must(err)
	ended := status.State.Terminated
	if ended == nil || ended.Message != "farewell" || ended.ExitCode != 4 || ended.Reason != "Error" {
		t.Errorf("status is %s", kit.Describe(created))
	}
}

func TestUnknownImageIsReported(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("stranger")
	pod.Spec.Containers[0].Image = "localhost/there-is-no-such-image:1"
	s.wait(s.create(pod), podTimeout, waitingFor("ErrImagePull", "ImagePullBackOff"))
}

// TestServedOnTheNodeAddress reads statistics and metrics through the API server. It does not run in parallel:
// TestHungShim keeps the runtime from answering requests for statistics.
func TestServedOnTheNodeAddress(t *testing.T) {
	s := newSpace(t)
	summary := s.kubectl("get", "--raw", "/api/v1/nodes/"+cluster.NodeName+"/proxy/stats/summary")
	if !strings.Contains(summary, `"nodeName": "`+cluster.NodeName+`"`) {
		t.Errorf("stats summary does not name the node: %.200s", summary)
	}
	metrics := s.kubectl("get", "--raw", "/api/v1/nodes/"+cluster.NodeName+"/proxy/metrics")
	if !strings.Contains(metrics, "kubelet_running_pods") {
		t.Error("the metrics lack kubelet_running_pods")
	}
}
