package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// GuestVariable names the environment variable with the file of a Guest.
const GuestVariable = "PLIMSOLL_GUEST"

// Guest is what a program needs to start a cluster in a virtual machine: the machine that runs the virtual one has the
// control plane, images and programs.
type Guest struct {
	// ControlPlane is the URL of the ControlHandler of the control plane.
	ControlPlane string `json:"controlPlane"`
	// Credentials is a directory with the credentials of the control plane, as StartControlPlane leaves them in the state
	// directory of its layout.
	Credentials string `json:"credentials"`
	// ImageStore is a root directory of containerd with the images.
	ImageStore string `json:"imageStore"`
	// Systemd is whether systemd makes the control groups of pods. Containerd and the kubelet run in scopes of systemd in
	// any case.
	Systemd bool `json:"systemd"`
	// CgroupRoot is the kubelet's cgroupRoot; "" is the root.
	CgroupRoot string `json:"cgroupRoot,omitempty"`
}

// ReadGuest returns the guest that GuestVariable names, or nil on a machine that runs the whole cluster itself.
func ReadGuest() (*Guest, error) {
	name := os.Getenv(GuestVariable)
	if name == "" {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", GuestVariable, err)
	}
	guest := &Guest{}
	if err := json.Unmarshal(data, guest); err != nil {
		return nil, fmt.Errorf("decode %s: %w", name, err)
	}
	return guest, nil
}

// Requests to a ControlHandler.
const (
	controlAnew   = "/anew"
	controlStop   = "/stop"
	controlRevive = "/revive"
)

// ControlHandler has a guest control this control plane. Requests are served one after the other.
func (c *Cluster) ControlHandler() http.Handler {
	mux := http.NewServeMux()
	var busy sync.Mutex
	for path, act := range map[string]func(context.Context) error{
		controlAnew: c.anewControlPlane, controlStop: c.StopAPIServer, controlRevive: c.ReviveAPIServer,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			busy.Lock()
			defer busy.Unlock()
			// The guest may lose its connection; what was begun is completed all the same.
			if err := act(context.WithoutCancel(r.Context())); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	return mux
}

// anewControlPlane replaces the control plane by one without objects, with the same credentials.
func (c *Cluster) anewControlPlane(ctx context.Context) error {
	for _, name := range []string{processController, processScheduler, processAPIServer, processEtcd} {
		if err := c.config.Layout.processes().Stop(ctx, name, 0); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(c.config.Layout.run("etcd")); err != nil {
		return fmt.Errorf("remove objects: %w", err)
	}
	return c.startControlPlane(ctx)
}

// control sends a request to the handler of the control plane.
func (g *Guest) control(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.ControlPlane+path, nil)
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("control plane: %s: %s: %s", path, response.Status, bytes.TrimSpace(text))
	}
	return nil
}

// copyCredentials copies the credentials into the layout.
func (g *Guest) copyCredentials(layout Layout) error {
	for _, dir := range CredentialDirs {
		files, err := os.ReadDir(filepath.Join(g.Credentials, dir))
		if err != nil {
			return fmt.Errorf("copy credentials: %w", err)
		}
		for _, file := range files {
			data, err := os.ReadFile(filepath.Join(g.Credentials, dir, file.Name()))
			if err == nil {
				err = os.WriteFile(filepath.Join(layout.State, dir, file.Name()), data, 0o600)
			}
			if err != nil {
				return fmt.Errorf("copy credentials: %w", err)
			}
		}
	}
	return nil
}

// CredentialDirs are the directories with credentials below the state directory of a layout.
var CredentialDirs = []string{"config", "pki"}

// copyImages copies the images into the root directory of containerd, which does not run yet. Importing them would take
// minutes where the machine is emulated.
func (g *Guest) copyImages(ctx context.Context, layout Layout) error {
	if err := os.MkdirAll(layout.ContainerdRoot(), 0o711); err != nil {
		return fmt.Errorf("copy images: %w", err)
	}
	out, err := exec.CommandContext(ctx, "cp", "-a", g.ImageStore+"/.", layout.ContainerdRoot()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy images: %w: %s", err, out)
	}
	return nil
}

// systemd is whether systemd makes the control groups of pods.
func (g *Guest) systemd() bool { return g != nil && g.Systemd }
