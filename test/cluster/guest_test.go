package cluster

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadGuest(t *testing.T) {
	if guest, err := ReadGuest(); guest != nil || err != nil {
		t.Errorf("on a machine of its own: %v, %v", guest, err)
	}
	name := filepath.Join(t.TempDir(), "guest.json")
	t.Setenv(GuestVariable, name)
	if _, err := ReadGuest(); err == nil {
		t.Error("a file that does not exist was read")
	}
	if err := os.WriteFile(name, []byte(`{"controlPlane": "http://x", "systemd": true}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if guest, err := ReadGuest(); err != nil || *guest != (Guest{ControlPlane: "http://x", Systemd: true}) {
		t.Errorf("read %+v, %v", guest, err)
	}
}

func TestGuestControlsTheControlPlane(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		if len(asked) > 2 {
			http.Error(w, "etcd has ended", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	c := &Cluster{config: Config{Guest: &Guest{ControlPlane: server.URL}}}
	if err := c.StopAPIServer(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.ReviveAPIServer(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.startControlPlane(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd has ended") {
		t.Errorf("a control plane that does not start: %v", err)
	}
	if want := []string{"POST /stop", "POST /revive", "POST /anew"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
}

func TestGuestTakesCredentials(t *testing.T) {
	source := t.TempDir()
	layout := Layout{State: t.TempDir()}
	for _, dir := range CredentialDirs {
		for _, base := range []string{source, layout.State} {
			if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(source, dir, "one"), []byte(dir), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := &Cluster{config: Config{Layout: layout, Guest: &Guest{Credentials: source}}}
	if err := c.makeCredentials(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range CredentialDirs {
		if data, err := os.ReadFile(filepath.Join(layout.State, dir, "one")); err != nil || string(data) != dir {
			t.Errorf("%s has %q, %v", dir, data, err)
		}
	}
}

func TestGuestRunsItsNodeUnderSystemd(t *testing.T) {
	for _, test := range []struct {
		guest          *Guest
		root           string
		program, group string
	}{
		{nil, "", "/bin/kubelet", "/kubepods"},
		{nil, "/plimsoll", "/bin/kubelet", "/plimsoll/kubepods"},
		{&Guest{}, "", "systemd-run", "/kubepods"},
		{&Guest{Systemd: true}, "", "systemd-run", "/kubepods.slice"},
		{&Guest{Systemd: true}, "/kubelet", "systemd-run", "/kubelet.slice/kubelet-kubepods.slice"},
	} {
		c := &Cluster{config: Config{Guest: test.guest, CgroupRoot: test.root, Kubelet: "/bin/kubelet"}}
		if got := c.config.inScope(c.kubelet()); got.Path != test.program || !slices.Contains(got.Args, "--v=2") {
			t.Errorf("%+v: the kubelet is %+v", test.guest, got)
		}
		if got := c.config.podsCgroup(); got != test.group {
			t.Errorf("%+v: the pods are in %s", test.guest, got)
		}
	}
}
