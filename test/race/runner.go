package race

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	namespace = "race"
	// podTimeout is how long a pod may take to start, and pressure to end; raceTimeout how long a hog may take to end.
	podTimeout, raceTimeout = 2 * time.Minute, 90 * time.Second
	// nearest and farthest are by how much more than the threshold is available at rest, in MiB, at least and at most;
	// nearSeconds the time in which a hog uses that up between them.
	nearest, farthest, nearSeconds = 80, 400, 4
	// aftermath is the time that other pods are observed after the hog has ended.
	aftermath = 2 * time.Second
	// rateWindow is the time before the crossing over which growth is measured.
	rateWindow = 100 * time.Millisecond
	// transition is how long pressure stays after it was last observed.
	transition = time.Second
)

// Runner carries out runs on a cluster, one at a time.
type Runner struct {
	Cluster *cluster.Cluster
	// OurKubelet and StockKubelet are paths of programs.
	OurKubelet, StockKubelet string
	// Rest is how long hogs rest before they grow.
	Rest time.Duration
	// Virtual is whether the node is a virtual machine that nothing else uses.
	Virtual bool
	// Log receives progress; nil discards it.
	Log io.Writer

	client  kubernetes.Interface
	memory  kit.CgroupMemory
	present Cell
	others  []neighbour
}

// neighbour is a pod that a run must not change, with the PID of its process.
type neighbour struct {
	pod *v1.Pod
	pid int
}

// Program returns a short digest of the program that a cell's kubelet is, by which its runs are told from those of
// other versions.
func (r *Runner) Program(kubelet string) (string, error) {
	file, err := os.Open(r.path(kubelet))
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("read kubelet: %w", err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:12], nil
}

func (r *Runner) path(kubelet string) string {
	if kubelet == Stock || kubelet == StockNotify {
		return r.StockKubelet
	}
	return r.OurKubelet
}

// Race carries out one run. The kubelet is restarted if that of the run before had another configuration. In a virtual
// machine, which may be emulated, the first run of a kubelet is repeated, and only the second one counts: an emulator
// translates code when it first runs, which makes the first eviction of a process take a second longer.
func (r *Runner) Race(ctx context.Context, c Cell) (*Run, error) {
	before := r.present
	run, err := r.raceOnce(ctx, c)
	if err == nil && r.Virtual && r.present != before {
		fmt.Fprintf(r.Log, "not counted: %s\n", run.Line())
		return r.raceOnce(ctx, c)
	}
	return run, err
}

// raceOnce carries out one run.
func (r *Runner) raceOnce(ctx context.Context, c Cell) (*Run, error) {
	if err := r.prepare(ctx, c); err != nil {
		return nil, fmt.Errorf("prepare %v: %w", c, err)
	}
	run, err := r.race(ctx, c)
	if err != nil {
		err = fmt.Errorf("%v: %w", c, err)
	}
	return run, errors.Join(err, r.tidy(ctx, run))
}

// Close removes the pods of all runs, and their namespace. The Runner cannot be used any more.
func (r *Runner) Close(ctx context.Context) error {
	if r.client == nil {
		return nil
	}
	err := r.removePods(ctx, func(*v1.Pod) bool { return true })
	return errors.Join(err, r.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
}

// prepare starts the kubelet of the cell unless it runs, and the neighbours.
func (r *Runner) prepare(ctx context.Context, c Cell) (err error) {
	if r.Log == nil {
		r.Log = io.Discard
	}
	if r.client == nil {
		r.client = r.Cluster.Client()
		if err := r.makeNamespace(ctx); err != nil {
			return err
		}
	}
	if c.Kind == WholeNode && (!r.Virtual || c.Cache != Cold) {
		return fmt.Errorf("kind %s runs only in a virtual machine, with a page cache that is %s", WholeNode, Cold)
	}
	if r.present.Kubelet != c.Kubelet || r.present.Headroom != c.Headroom ||
		(r.present.Kind == WholeNode) != (c.Kind == WholeNode) {
		if err := r.startKubelet(ctx, c); err != nil {
			return err
		}
		r.present = c
	}
	if r.memory, err = kit.FindCgroupMemory(r.Cluster.PodsCgroup()); err != nil {
		return err
	}
	if err := r.noPressure(ctx); err != nil {
		return err
	}
	if len(r.others) > 0 {
		return nil
	}
	return r.startNeighbours(ctx)
}

func (r *Runner) makeNamespace(ctx context.Context) error {
	_, err := r.client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := kit.Poll(ctx, podTimeout, func(ctx context.Context) error {
		_, err := r.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	return r.removePods(ctx, func(*v1.Pod) bool { return true })
}

func (r *Runner) startKubelet(ctx context.Context, c Cell) error {
	fmt.Fprintf(r.Log, "starting kubelet %s with a threshold of %d MiB\n", c.Kubelet, c.Headroom)
	if err := r.Cluster.StopKubelet(ctx); err != nil {
		return err
	}
	if c.Kind == WholeNode {
		if err := r.liftLimit(); err != nil {
			return err
		}
	}
	r.Cluster.SetKubelet(r.path(c.Kubelet))
	r.Cluster.SetKubeletEnv(nil)
	if c.Kubelet == Ours || c.Kubelet == OursOff {
		env, err := r.writeSettings(c)
		if err != nil {
			return err
		}
		r.Cluster.SetKubeletEnv(env)
	}
	err := r.Cluster.StartKubelet(ctx, func(config *kubeletv1beta1.KubeletConfiguration) {
		config.EvictionHard["memory.available"] = fmt.Sprintf("%dMi", c.Headroom)
		config.EvictionPressureTransitionPeriod = metav1.Duration{Duration: transition}
		config.KernelMemcgNotification = c.Kubelet == StockNotify
		if c.Kind == WholeNode {
			config.EnforceNodeAllocatable = []string{"none"}
		}
	})
	if err != nil {
		return err
	}
	return r.favour()
}

// liftLimit removes the limit of all pods that an earlier kubelet has set.
func (r *Runner) liftLimit() error {
	memory, err := kit.FindCgroupMemory(r.Cluster.PodsCgroup())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(memory.Pods, memory.Limit), []byte(memory.Unlimited), 0)
}

// available returns what the hogs of the cell may still use, in bytes.
func (r *Runner) available(c Cell) (int64, error) {
	if c.Kind == WholeNode {
		return kit.NodeMemoryAvailable()
	}
	return r.memory.Available()
}

// favour raises the share of CPU time of kubelet, container runtime and this program, whichever kubelet it is: where
// the kernel groups processes by session, other work on the machine would delay them as no unit of systemd delays
// another.
func (r *Runner) favour() error {
	kubelet, err := r.Cluster.KubeletPID()
	if err != nil {
		return err
	}
	runtime, err := r.Cluster.ContainerdPID()
	if err != nil {
		return err
	}
	for _, pid := range []int{kubelet, runtime, os.Getpid()} {
		err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(priority)), 0)
		if err != nil {
			fmt.Fprintf(r.Log, "share of CPU time not raised: %v\n", err)
		}
	}
	return nil
}

// writeSettings writes the file with the settings of our own, and returns the environment that names it.
func (r *Runner) writeSettings(c Cell) ([]string, error) {
	fence := "Auto"
	if c.Kubelet == OursOff {
		fence = "Off"
	}
	text := "apiVersion: nodepressure.plimsoll.dev/v1alpha1\nkind: NodePressureConfiguration\n" +
		"eviction: {fence: \"" + fence + "\"}\n"
	file := r.Cluster.Layout().PressureConfig()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return []string{"PLIMSOLL_PRESSURE_CONFIG=" + file}, nil
}

func (r *Runner) noPressure(ctx context.Context) error {
	return kit.Poll(ctx, podTimeout, func(ctx context.Context) error { return kit.MemoryPressure(ctx, r.client, false) })
}

func (r *Runner) startNeighbours(ctx context.Context) error {
	var created []*v1.Pod
	for _, pod := range neighbours() {
		pod, err := r.create(ctx, pod)
		if err != nil {
			return err
		}
		created = append(created, pod)
	}
	var others []neighbour
	for _, pod := range created {
		ready, err := kit.WaitPod(ctx, r.client, pod, podTimeout, kit.Ready)
		if err != nil {
			return err
		}
		pid, err := r.Cluster.ContainerPID(ctx, ready.Status.ContainerStatuses[0].ContainerID)
		if err != nil {
			return err
		}
		others = append(others, neighbour{pod: ready, pid: pid})
	}
	r.others = others
	return nil
}

func (r *Runner) create(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	return r.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// race carries out the run itself.
func (r *Runner) race(ctx context.Context, c Cell) (*Run, error) {
	log, err := kit.OpenKernelLog()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	run, err := r.describe(ctx, c)
	if err != nil {
		return nil, err
	}
	pods, err := r.startHogs(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.Cache == Warm {
		if err := r.fillCache(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.grow(ctx, run, pods); err != nil {
		return nil, err
	}
	if err := r.inspect(ctx, run, pods); err != nil {
		return nil, err
	}
	records, err := log.Records()
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, pod := range pods {
		names[string(pod.UID)] = pod.Name
	}
	for _, n := range r.others {
		names[string(n.pod.UID)] = n.pod.Name
	}
	for _, record := range records {
		if k, ok := kit.ParseOOMKill(record); ok {
			run.addOOM(k, r.Cluster.PodsCgroup(), names)
		}
	}
	run.checkReasons()
	run.decide()
	return run, nil
}

// describe returns a run with what is the same for all runs of the cell.
func (r *Runner) describe(ctx context.Context, c Cell) (*Run, error) {
	node, err := kit.Node(ctx, r.client)
	if err != nil {
		return nil, err
	}
	program, err := r.Program(c.Kubelet)
	return &Run{
		Cell: c, Began: time.Now().UTC().Truncate(time.Second), Kernel: node.Status.NodeInfo.KernelVersion,
		Cgroups: r.memory.Version, Version: node.Status.NodeInfo.KubeletVersion, Program: program,
	}, err
}

// startHogs starts the hogs, and waits until they rest.
func (r *Runner) startHogs(ctx context.Context, c Cell) ([]*v1.Pod, error) {
	available, err := r.available(c)
	if err != nil {
		return nil, err
	}
	distance := min(max(nearSeconds*c.Rate, nearest), farthest)
	start := available/mebibyte - c.Headroom - distance
	if start < 64 {
		return nil, fmt.Errorf("only %d MiB are available to pods", available/mebibyte)
	}
	var pods []*v1.Pod
	for _, pod := range hogs(c, start) {
		created, err := r.create(ctx, pod)
		if err != nil {
			return nil, err
		}
		pods = append(pods, created)
	}
	err = kit.Poll(ctx, podTimeout, func(context.Context) error {
		present, err := r.available(c)
		if left := present/mebibyte - c.Headroom - distance; err == nil && left > 24 {
			err = fmt.Errorf("the hogs have still to use %d MiB", left)
		}
		return err
	})
	if err == nil {
		err = pause(ctx, r.Rest)
	}
	return pods, err
}

// fillCache fills the page cache of the cgroup of all pods, by a pod that reads a file without content.
func (r *Runner) fillCache(ctx context.Context) error {
	file := r.cacheFile()
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return err
	}
	if err := os.Truncate(file, r.Cluster.PodMemory()); err != nil {
		return err
	}
	pod, err := r.create(ctx, cachePod(file))
	if err != nil {
		return err
	}
	if _, err := kit.WaitPod(ctx, r.client, pod, podTimeout, kit.Ready); err != nil {
		return err
	}
	err = kit.Poll(ctx, podTimeout, func(context.Context) error {
		usage, err := kit.ReadCgroupNumber(r.memory.Pods, r.memory.Usage)
		if left := r.Cluster.PodMemory() - usage; err == nil && left > 8*mebibyte {
			err = fmt.Errorf("%d MiB are not used yet", left/mebibyte)
		}
		return err
	})
	return errors.Join(err, pause(ctx, time.Second))
}

func (r *Runner) cacheFile() string { return filepath.Join(r.Cluster.Layout().State, "cache") }

// grow has the hogs grow, and observes them until they have ended.
func (r *Runner) grow(ctx context.Context, run *Run, pods []*v1.Pod) error {
	pids, dirs, err := r.processes(ctx, pods)
	if err != nil {
		return err
	}
	observer, err := newObserver(r.memory, dirs, pids)
	if err != nil {
		return err
	}
	defer observer.close()
	available, err := r.available(run.Cell)
	if err != nil {
		return err
	}
	if run.Kind != WholeNode {
		if err := touch(available); err != nil {
			return err
		}
	}
	observed, stop := context.WithCancel(ctx)
	var observing sync.WaitGroup
	observing.Go(func() { observer.run(observed) })
	defer func() { stop(); observing.Wait() }()
	if err := pause(ctx, 50*time.Millisecond); err != nil {
		return err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGUSR1); err != nil {
			return fmt.Errorf("signal process %d: %w", pid, err)
		}
	}
	for _, pod := range pods {
		if _, err := kit.WaitPod(ctx, r.client, pod, raceTimeout, stopped); err != nil {
			fmt.Fprintf(r.Log, "  %v\n", err)
		}
	}
	stop()
	observing.Wait()
	run.judge(observation{
		samples: observer.samples, ended: observer.ended, headroom: run.Headroom * mebibyte, rateWindow: rateWindow,
		rest: rest{available: available, hogs: observer.samples[0].hogs},
	})
	return nil
}

// touch uses and frees an amount of memory. A virtual machine whose host has taken back what was free gets it again, so
// that the hogs do not wait for that.
func touch(size int64) error {
	data, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("use %d MiB: %w", size/mebibyte, err)
	}
	return unix.Munmap(data)
}

// processes returns the PIDs of the hogs, and the directories of their pods' cgroups.
func (r *Runner) processes(ctx context.Context, pods []*v1.Pod) (pids []int, dirs []string, err error) {
	cgroups, err := r.Cluster.PodCgroups()
	if err != nil {
		return nil, nil, err
	}
	for _, pod := range pods {
		running, err := kit.WaitPod(ctx, r.client, pod, podTimeout, func(pod *v1.Pod) error {
			for _, c := range containers(pod) {
				if c.Name == hogName && c.State.Running != nil {
					return nil
				}
			}
			return kit.IfEnded(pod, errors.New("the hog does not run: "+kit.Describe(pod)))
		})
		if err != nil {
			return nil, nil, err
		}
		for _, c := range containers(running) {
			if c.Name != hogName {
				continue
			}
			pid, err := r.Cluster.ContainerPID(ctx, c.ContainerID)
			if err != nil {
				return nil, nil, err
			}
			pids = append(pids, pid)
		}
		for _, dir := range cgroups[string(pod.UID)] {
			if strings.HasPrefix(dir, r.memory.Pods+"/") {
				dirs = append(dirs, dir)
			}
		}
	}
	if len(dirs) != len(pods) {
		return nil, nil, fmt.Errorf("%d of %d hogs have a cgroup", len(dirs), len(pods))
	}
	return pids, dirs, nil
}

// inspect records what became of all pods.
func (r *Runner) inspect(ctx context.Context, run *Run, pods []*v1.Pod) error {
	if err := pause(ctx, aftermath); err != nil {
		return err
	}
	for _, pod := range pods {
		final, err := r.client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		run.Hogs = append(run.Hogs, statusOf(final))
	}
	for _, n := range r.others {
		now, err := r.client.CoreV1().Pods(namespace).Get(ctx, n.pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lost := r.changed(ctx, n, now); lost != "" {
			run.Lost = append(run.Lost, now.Name+": "+lost)
		}
	}
	return nil
}

// changed says what became of a neighbour, nothing if it is as before.
func (r *Runner) changed(ctx context.Context, n neighbour, now *v1.Pod) string {
	if err := kit.Ready(now); err != nil {
		return err.Error()
	}
	status := now.Status.ContainerStatuses[0]
	if status.RestartCount != 0 {
		return fmt.Sprintf("restarted %d times", status.RestartCount)
	}
	if pid, err := r.Cluster.ContainerPID(ctx, status.ContainerID); err != nil || pid != n.pid {
		return fmt.Sprintf("process %d is now %d: %v", n.pid, pid, err)
	}
	return ""
}

// tidy removes the pods of a run: also the neighbours if one was changed, or the run has failed.
func (r *Runner) tidy(ctx context.Context, run *Run) error {
	keep := run != nil && len(run.Lost) == 0
	if !keep {
		r.others = nil
	}
	err := r.removePods(ctx, func(pod *v1.Pod) bool {
		return !keep || pod.Name == cacheName || strings.HasPrefix(pod.Name, hogName)
	})
	if removed := os.Remove(r.cacheFile()); removed != nil && !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

func (r *Runner) removePods(ctx context.Context, which func(*v1.Pod) bool) error {
	pods := r.client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if !which(pod) {
			continue
		}
		err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for i := range list.Items {
		if pod := &list.Items[i]; which(pod) {
			if err := kit.WaitGone(ctx, r.client, pod, podTimeout); err != nil {
				return err
			}
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
