package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stockapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	stockeviction "k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/volume"
)

// The plugins are those of stock.
func TestVolumePluginsEqualStock(t *testing.T) {
	stock, err := stockapp.ProbeVolumePlugins(t.Context(), utilfeature.DefaultFeatureGate)
	if err != nil {
		t.Fatal(err)
	}
	names := func(plugins []volume.VolumePlugin) []string {
		var names []string
		for _, plugin := range plugins {
			names = append(names, plugin.GetPluginName())
		}
		slices.Sort(names)
		return names
	}
	if got, want := names(volumePlugins(utilfeature.DefaultFeatureGate)), names(stock); !slices.Equal(got, want) {
		t.Errorf("plugins %v, stock has %v", got, want)
	}
}

func TestDefaultEvictionHardEqualsStock(t *testing.T) {
	if got := defaultEvictionHard(); !reflect.DeepEqual(got, stockeviction.DefaultEvictionHard) {
		t.Errorf("got %v, stock has %v", got, stockeviction.DefaultEvictionHard)
	}
}

// The authentication with each combination of settings equals stock's; but a node without a client CA does not panic if
// a client sends a certificate.
func TestAuthenticationEqualsStock(t *testing.T) {
	client := fake.NewClientset()
	for _, anonymous := range []bool{false, true} {
		for _, webhook := range []bool{false, true} {
			for _, ca := range []string{"", "/no/such/ca"} {
				config := kubeletconfig.KubeletAuthentication{}
				config.Anonymous.Enabled, config.Webhook.Enabled, config.X509.ClientCAFile = anonymous, webhook, ca
				_, err := newAuthentication(client, config)
				_, _, _, stockErr := stockapp.BuildAuthn(client.AuthenticationV1(), config)
				if (err == nil) != (stockErr == nil) {
					t.Errorf("anonymous %v, webhook %v, CA %q: %v, stock says %v", anonymous, webhook, ca, err, stockErr)
				}
				if ca != "" && (err == nil || !strings.Contains(err.Error(), "clientCAFile (--client-ca-file) \"/no/such/ca\"")) {
					t.Errorf("missing CA file: %v", err)
				}
			}
		}
	}
}

func TestAuthorizerEqualsStock(t *testing.T) {
	client := fake.NewClientset()
	for _, mode := range []kubeletconfig.KubeletAuthorizationMode{"", "Webhook", "AlwaysAllow", "RBAC"} {
		config := kubeletconfig.KubeletAuthorization{Mode: mode}
		_, err := newAuthorizer(client, config)
		_, stockErr := stockapp.BuildAuthz(client.AuthorizationV1(), config)
		if (err == nil) != (stockErr == nil) {
			t.Errorf("mode %q: %v, stock says %v", mode, err, stockErr)
		}
		if err != nil && !strings.Contains(err.Error(), "authorization.mode (--authorization-mode)") {
			t.Errorf("mode %q: message %q does not name the field", mode, err)
		}
	}
	if _, err := newAuthorizer(nil, kubeletconfig.KubeletAuthorization{Mode: "Webhook"}); err == nil {
		t.Error("webhook authorization without a client")
	}
}

func TestHeartbeatClient(t *testing.T) {
	api := &rest.Config{QPS: 50}
	config := &kubeletconfig.KubeletConfiguration{NodeLeaseDurationSeconds: 40}
	for _, tc := range []struct{ period, want time.Duration }{
		{10 * time.Second, 10 * time.Second}, {time.Minute, 40 * time.Second},
	} {
		config.NodeStatusUpdateFrequency.Duration = tc.period
		if got := heartbeatConfig(api, config); got.Timeout != tc.want || got.QPS != -1 || api.QPS != 50 {
			t.Errorf("every %v: time-out %v, QPS %v; the shared client has QPS %v", tc.period, got.Timeout, got.QPS, api.QPS)
		}
	}
}

func TestCertificateWatch(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	valid := &tls.Certificate{Leaf: &x509.Certificate{NotAfter: start.Add(time.Hour)}}
	watch := certificateWatcher{lastSeen: start}
	steps := []struct {
		after   time.Duration
		current *tls.Certificate
		lost    bool
	}{
		{0, valid, false},
		{4 * time.Minute, valid, false},
		{8 * time.Minute, nil, false},                        // four minutes without
		{9*time.Minute + time.Second, nil, true},             // more than five
		{10 * time.Minute, valid, false},                     // it is back
		{14*time.Minute + 59*time.Second, nil, false},        // counted anew
		{time.Hour + time.Second, valid, true},               // expired
		{time.Hour + time.Second, &tls.Certificate{}, false}, // unknown leaf is no reason to end
	}
	for _, step := range steps {
		if err := watch.check(step.current, start.Add(step.after)); (err != nil) != step.lost {
			t.Errorf("after %v: %v, want lost %v", step.after, err, step.lost)
		}
	}
}

// fakeRuntime returns responses from a list; the last one is repeated.
type fakeRuntime struct {
	answers []error
	asked   int
}

func (f *fakeRuntime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	err := f.answers[min(f.asked, len(f.answers)-1)]
	f.asked++
	return &runtimeapi.RuntimeConfigResponse{}, err
}

func TestRuntimeConfigIsRetried(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "starting")
	unimplemented := status.Error(codes.Unimplemented, "old")
	tests := []struct {
		name    string
		answers []error
		asked   int
		want    codes.Code
		took    time.Duration
	}{
		{"at once", []error{nil}, 1, codes.OK, 0},
		{"second time", []error{unavailable, nil}, 2, codes.OK, 2 * time.Second},
		{"never", []error{unavailable}, 3, codes.Unavailable, 4 * time.Second},
		{"too old", []error{unimplemented}, 1, codes.Unimplemented, 0},
	}
	for _, tc := range tests {
		synctest.Test(t, func(t *testing.T) {
			runtime, start := &fakeRuntime{answers: tc.answers}, time.Now()
			_, err := getRuntimeConfig(t.Context(), runtime)
			if status.Code(err) != tc.want || runtime.asked != tc.asked || time.Since(start) != tc.took {
				t.Errorf("%s: %v after %d times and %v", tc.name, err, runtime.asked, time.Since(start))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := getRuntimeConfig(ctx, &fakeRuntime{answers: []error{unavailable}}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("stopped: %v", err)
		}
	})
}

func TestCheckVersion(t *testing.T) {
	for version, good := range map[string]bool{
		"v1.36.3+plimsoll.1": true, "v1.36.3": true, "": false, "v0.0.0-master+$Format:%H$": false,
	} {
		if err := checkVersion(apimachineryversion.Info{GitVersion: version}); (err == nil) != good {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// The first signal ends the context, the second ends the process at once.
func TestSignals(t *testing.T) {
	now := make(chan struct{})
	ctx, stop := UntilSignal(t.Context(), func() { close(now) })
	defer stop()
	for _, wait := range []<-chan struct{}{ctx.Done(), now} {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-wait:
		case <-time.After(20 * time.Second):
			t.Fatal("signal not seen")
		}
	}
}

func TestUnsupportedWarnings(t *testing.T) {
	gatesOfProcess(t)
	settings := validSettings(t, "--fail-swap-on=true")
	if lines := UnsupportedWarnings(settings.Config, settings.Flags, utilfeature.DefaultFeatureGate); len(lines) > 0 {
		t.Errorf("warnings about defaults: %q", lines)
	}
	list := UnsupportedSettings
	t.Cleanup(func() { UnsupportedSettings = list })
	UnsupportedSettings = append(UnsupportedSettings, Unsupported{
		Setting: "maxPods (--max-pods)", Consequence: "whatever",
		used: func(config *kubeletconfig.KubeletConfiguration, _ *options.KubeletFlags, _ featuregate.FeatureGate) bool {
			return config.MaxPods == 7
		},
	})
	settings.Config.MaxPods = 7
	if lines := settings.warnings(); len(lines) != 1 || lines[0] != "maxPods (--max-pods) is not supported yet: whatever" {
		t.Errorf("warnings %q", lines)
	}
	seen := map[string]bool{}
	for _, entry := range UnsupportedSettings {
		if entry.Setting == "" || entry.Consequence == "" || seen[entry.Setting] {
			t.Errorf("entry %+v is incomplete or there twice", entry)
		}
		seen[entry.Setting] = true
	}
}

func TestDirectoriesBecomeAbsolute(t *testing.T) {
	p := &process{settings: validSettings(t, "--root-dir=state", "--cert-dir=/pki/../certs")}
	if err := p.makeAbsolute(t.Context()); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if flags := p.settings.Flags; flags.RootDirectory != here+"/state" || flags.CertDirectory != "/certs" {
		t.Errorf("root %s, certificates %s", flags.RootDirectory, flags.CertDirectory)
	}
}

func TestParseReservation(t *testing.T) {
	list, err := parseReservation(map[string]string{
		"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "5Gi", "pid": "1000",
	})
	if err != nil || len(list) != 4 || list.Cpu().MilliValue() != 100 {
		t.Errorf("got %v, %v", list, err)
	}
	if list, err := parseReservation(nil); list != nil || err != nil {
		t.Errorf("nothing reserved: %v, %v", list, err)
	}
}

// The reservation for eviction equals stock's for the same thresholds.
func TestReservedForEvictionEqualsStock(t *testing.T) {
	for _, hard := range []map[string]string{
		nil, defaultEvictionHard(), {"memory.available": "0%"}, {"memory.available": "100%", "nodefs.available": "7%"},
		{"memory.available": "1.5Gi"},
	} {
		ours, err := reservedForEviction(hard)
		if err != nil {
			t.Fatal(err)
		}
		stock, err := stockeviction.ParseThresholdConfig(nil, hard, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(ours) != len(stock) {
			t.Errorf("%v: %d thresholds, stock has %d", hard, len(ours), len(stock))
		}
		for _, threshold := range ours {
			same := slices.ContainsFunc(stock, func(s evictionapi.Threshold) bool { return reflect.DeepEqual(s, threshold) })
			if !same {
				t.Errorf("%v: %+v is not among stock's", hard, threshold)
			}
		}
	}
}
