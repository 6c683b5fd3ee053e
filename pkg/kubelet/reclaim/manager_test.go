package reclaim

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/test/fixture"
)

func TestNewValidates(t *testing.T) {
	_, err := New(Config{})
	for _, want := range []string{"Images", "Active", "Measure", "Clock"} {
		if err == nil || !strings.Contains(err.Error(), want+" is required") {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
	for want, p := range map[string]Policy{
		"invalid HighThresholdPercent 101, must be in range [0-100]":            {HighPercent: 101},
		"invalid LowThresholdPercent -1, must be in range [0-100]":              {LowPercent: -1},
		"LowThresholdPercent 80 can not be higher than HighThresholdPercent 70": {HighPercent: 70, LowPercent: 80},
	} {
		c := newWorld().config()
		c.Policy = p
		if _, err := New(c); err == nil || err.Error() != want {
			t.Errorf("%+v: error %v, want %q", p, err, want)
		}
	}
}

func TestRunUpdatesListAndRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(newImage("small", 1), newImage("big", 2))
		m := w.manager(t)
		if list, _ := m.GetImageList(); len(list) > 0 {
			t.Errorf("a list before the first reading: %v", list)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		synctest.Wait()
		list, err := m.GetImageList()
		if err != nil || len(list) != 2 || list[0].ID != "sha256:big" {
			t.Errorf("list %v, error %v", list, err)
		}
		w.mu.Lock()
		w.images = append(w.images, newImage("new", 3))
		w.fails["GetPods"] = errors.New("unavailable")
		w.mu.Unlock()
		time.Sleep(listPeriod + time.Second)
		if list, _ = m.GetImageList(); len(list) != 3 || list[0].ID != "sha256:new" {
			t.Errorf("list %v", list)
		}
		if age := time.Since(m.records[m.keyOf(&list[0])].firstDetected); age != time.Second {
			t.Errorf("the age of the new image is %v", age)
		}
		w.mu.Lock()
		w.fails["ListImages"] = errors.New("unavailable too")
		w.mu.Unlock()
		time.Sleep(detectPeriod)
		if list, _ = m.GetImageList(); len(list) != 3 {
			t.Errorf("the list was lost: %v", list)
		}
		cancel()
		<-done
	})
}

// An observation from before a removal must not restore the record of the image.
func TestOldUsageDoesNotRestoreRecords(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		old, err := m.readUsage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		mustReclaim(t, m, request(450))
		m.updateRecords(old)
		if r, ok := m.records[m.keyOf(&old.images[0])]; ok {
			t.Errorf("a removed image has the record %v", r)
		}
		if len(m.records) != 2 {
			t.Errorf("records %v", m.records)
		}
	})
}

func TestImagesOfRuntimeHandlers(t *testing.T) {
	for name, test := range map[string]struct {
		gate    bool
		handler string
		removed int
	}{
		"gate off":                        {false, "runc", 0},
		"used under one":                  {true, "runc", 1},
		"used, it is not known how":       {true, "", 0},
		"used under one of which none is": {true, "gvisor", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, other := newImage("a", 100), newImage("a", 100)
				one.Spec.RuntimeHandler, other.Spec.RuntimeHandler = "runc", "kata"
				w := newWorld(one, other)
				c := w.config()
				c.Features.RuntimeClassInImageCRI = test.gate
				m, err := New(c)
				if err != nil {
					t.Fatal(err)
				}
				m.updateUsage(t.Context())
				time.Sleep(time.Hour)
				w.addContainer("pod", "c", "a", 0)
				w.pods[0].Containers[0].ImageRuntimeHandler = test.handler
				mustReclaim(t, m, request(5000))
				fixture.ExpectEqual(t, "removed", len(w.removed), test.removed)
			})
		})
	}
}

func TestImagesWithoutIDStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(image{used: 5}, newImage("a", 1))
		w.images[0].Spec.RuntimeHandler = "runc"
		m := w.manager(t)
		m.updateUsage(t.Context())
		time.Sleep(time.Hour)
		mustReclaim(t, m, request(5000))
		fixture.ExpectEqual(t, "removed", w.removed, []string{"sha256:a"})
		if !slices.Contains(w.events, "InvalidImageID: ImageID is not valid, skipping, image: ") {
			t.Errorf("events %v", w.events)
		}
	})
}

func TestReferences(t *testing.T) {
	const digest = "@sha256:0123456789012345678901234567890123456789012345678901234567890123"
	images := map[string]kubecontainer.Image{
		"hub":    {ID: "sha256:1", RepoTags: []string{"docker.io/library/busybox:latest", "docker.io/library/busybox:1.36"}},
		"digest": {ID: "sha256:2", RepoDigests: []string{"registry.k8s.io/pause" + digest}},
		"mirror": {ID: "sha256:3", RepoTags: []string{"quay.io/tools/alpine:3"}},
		"id":     {ID: "sha256:4444444444444444444444444444444444444444444444444444444444444444"},
	}
	for name, want := range map[string]string{
		"busybox": "hub", "busybox:1.36": "hub", "docker.io/busybox": "hub", "docker.io/library/busybox:latest": "hub",
		"library/busybox": "hub",
		"busybox:2":       "", "quay.io/busybox": "", "example.com/library/busybox:latest": "",
		"registry.k8s.io/pause" + digest: "digest", "registry.k8s.io/pause:3.10" + digest: "digest",
		"registry.k8s.io/pause:3.10": "", "other.io/pause" + digest: "",
		"alpine:3": "mirror", "tools/alpine:3": "mirror", "quay.io/tools/alpine:3": "mirror", "docker.io/alpine:3": "",
		"alpine": "",
		"sha256:4444444444444444444444444444444444444444444444444444444444444444": "id",
		"4444444444444444444444444444444444444444444444444444444444444444":        "id",
		"": "", "UPPER:CASE": "", "://": "",
	} {
		c := references{byName: map[string][]types.UID{}, byShortName: map[string][]types.UID{}}
		c.add(name, "pod")
		for key, image := range images {
			if got := len(c.users(&image)) > 0; got != (key == want) {
				t.Errorf("%q refers to %s: %v", name, key, got)
			}
		}
	}
}

func TestImageNames(t *testing.T) {
	pod := podWithImage("pod", "main")
	pod.Spec.InitContainers = []v1.Container{{Image: "init"}}
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Image: "debug"}},
	}
	pod.Spec.Volumes = []v1.Volume{{}, {VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "volume"}}}}
	got := imageNames(pod)
	slices.Sort(got)
	fixture.ExpectEqual(t, "images", got, []string{"debug", "init", "main", "volume"})
}

func TestPodImages(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.images[2].Pinned = true
		w.addContainer("alone", "c", "a", 0)
		w.addContainer("alone", "d", "a", time.Hour)
		w.addContainer("alone", "pinned", "c", 0)
		w.addContainer("one", "c", "b", 0)
		w.active = []*v1.Pod{podWithImage("starting", "b"), podWithImage("elsewhere", "d")}
		bytes := func() map[types.UID]snapshot.Bytes {
			pods, err := m.PodImages(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return pods
		}
		fixture.ExpectEqual(t, "bytes", bytes(), map[types.UID]snapshot.Bytes{"alone": 100, "one": 0, "starting": 0})
		w.active = nil
		fixture.ExpectEqual(t, "soon after", bytes()["one"], 0)
		time.Sleep(maxUsageAge)
		fixture.ExpectEqual(t, "later", bytes()["one"], 200)
		time.Sleep(maxUsageAge)
		w.pulling = []string{"b"}
		fixture.ExpectEqual(t, "while it is pulled anew", bytes()["one"], 0)
		time.Sleep(maxUsageAge)
		w.fails["GetPods"] = errors.New("unavailable")
		if _, err := m.PodImages(t.Context()); err == nil {
			t.Error("the usage is unknown, and there is no error")
		}
	})
}

// pullService pulls until end is closed.
type pullService struct {
	internalapi.ImageManagerService
	began, end chan struct{}
}

func (s pullService) PullImage(
	_ context.Context, image *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	s.began <- struct{}{}
	<-s.end
	return "ref of " + image.Image, errors.New("failed")
}

func TestPulls(t *testing.T) {
	service := pullService{began: make(chan struct{}), end: make(chan struct{})}
	p := NewPullTracker(service)
	done := make(chan string)
	for _, name := range []string{"b", "a", "b"} {
		go func() {
			ref, err := p.PullImage(context.Background(), &runtimeapi.ImageSpec{Image: name}, nil, nil)
			done <- ref + " " + err.Error()
		}()
		<-service.began
	}
	fixture.ExpectEqual(t, "pulling", p.Pulling(), []string{"a", "b"})
	close(service.end)
	var ended []string
	for range 3 {
		ended = append(ended, <-done)
	}
	slices.Sort(ended)
	fixture.ExpectEqual(t, "ended", ended, []string{"ref of a failed", "ref of b failed", "ref of b failed"})
	fixture.ExpectEqual(t, "pulling in the end", len(p.Pulling()), 0)
}

// imageFs reports a path of images.
type imageFs string

func (f imageFs) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	if f == "unavailable" {
		return nil, errors.New("unavailable")
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: string(f)}}},
	}, nil
}

func TestMeasureDisks(t *testing.T) {
	root := t.TempDir()
	for _, test := range []struct {
		device snapshot.Device
		root   string
		images imageFs
		ok     bool
	}{
		{snapshot.NodeDevice, root, "unavailable", true},
		{snapshot.NodeDevice, root + "/not-there", imageFs(root), false},
		{snapshot.ImageDevice, "/not-there", imageFs(root), true},
		{snapshot.ImageDevice, root, "unavailable", false},
		{snapshot.ImageDevice, root, "", false},
	} {
		got, err := MeasureDisks(test.root, test.images)(t.Context(), test.device)
		if (err == nil) != test.ok || (got.Bytes > 0) != test.ok {
			t.Errorf("%+v: %+v, error %v", test, got, err)
		}
	}
	if _, err := MeasureDisks(root+"/x", imageFs(root))(t.Context(), snapshot.NodeDevice); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
