package plugin

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

// softEvictionNotice is the reason of the event on a pod that is given notice instead of being evicted.
const softEvictionNotice = "SoftEvictionNotice"

// NoticeFiles keeps a file for each pod that is given notice. The driver makes one call at a time.
type NoticeFiles interface {
	// Write makes the files in the directory, an absolute path, those of the notices. It writes the files that are
	// missing or differ, and removes those of other pods, which may be from an earlier run of the agent. It creates
	// the directory if it does not exist and there are notices. An error concerns the directory, or single files; the
	// others are written.
	Write(directory string, notices []debugv1alpha1.PluginNotice) error
}

// noticeFiles is the state of the notice files. The loop alone uses it.
type noticeFiles struct {
	// directory is the one that was last written, empty for none. old are earlier ones that may have files left.
	directory string
	old       []string
	// busy while a write is under way; changed if there is something to write; failed if the last write failed.
	busy, changed, failed bool
	// logged is the last error that was logged, until a write succeeds.
	logged string
	// written receives the end of each write.
	written chan noticesWrite
}

// noticesWrite is the end of a write. old are the directories from which not all files could be removed.
type noticesWrite struct {
	err error
	old []string
}

const (
	// noticePause is the shortest time between two events about notices to a pod. Of all warnings about a pod, client-go
	// sends 25 and then one in this time.
	noticePause = 5 * time.Minute
	// maxOldDirectories limits the earlier directories whose files could not be removed.
	maxOldDirectories = 8
)

// giveNotices takes over the notices of the arbiter: a new one is an event on the pod, and each one is a file while it
// lasts.
func (l *loop) giveNotices(list []arbiter.Notice) {
	if len(list) > 0 || len(l.notices) > 0 {
		notices := l.updatedNotices(list)
		l.mu.Lock()
		l.files.changed = l.files.changed || !slices.EqualFunc(l.notices, notices, sameNotice)
		l.notices = notices
		l.mu.Unlock()
	}
	l.writeNotices()
}

// updatedNotices returns the notices that there are from now on, in the order of UIDs. One that there was before keeps
// its time.
func (l *loop) updatedNotices(list []arbiter.Notice) (notices []debugv1alpha1.PluginNotice) {
	pods := l.config.Pods()
	for i := range list {
		n := &list[i]
		p := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return pod.UID == n.UID })
		if p < 0 {
			continue
		}
		pod := pods[p]
		notice := debugv1alpha1.PluginNotice{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Plugins: n.Plugins, Scope: n.Scope, Reason: n.Reason,
			GraceSeconds: ownGrace(pod),
		}
		if n.GraceSeconds != nil {
			notice.GraceSeconds = *n.GraceSeconds
		}
		var before debugv1alpha1.PluginNotice
		if i := slices.IndexFunc(l.notices, func(o debugv1alpha1.PluginNotice) bool { return o.UID == n.UID }); i >= 0 {
			before = l.notices[i]
		}
		if notice.Since = before.Since; notice.Since.IsZero() {
			notice.Since = l.config.Clock.Now()
			l.report(pod, &notice)
		}
		for _, plugin := range n.Plugins {
			if !slices.Contains(before.Plugins, plugin) {
				softNotices.WithLabelValues(labels.Of(plugin)).Inc()
			}
		}
		notices = append(notices, notice)
	}
	return notices
}

// report records an event on a pod that is given notice, unless it has had one within noticePause.
func (l *loop) report(pod *v1.Pod, n *debugv1alpha1.PluginNotice) {
	maps.DeleteFunc(l.noticed, func(_ types.UID, at time.Time) bool { return n.Since.Sub(at) >= noticePause })
	if _, reported := l.noticed[n.UID]; reported {
		return
	}
	l.noticed[n.UID] = n.Since
	plugins := strings.Join(n.Plugins, ", ")
	l.config.Recorder.Eventf(pod, v1.EventTypeWarning, softEvictionNotice,
		"Eviction requested by plugin %s (scope %q), the pod is given notice and not evicted: %s", plugins, n.Scope, n.Reason)
	klog.FromContext(l.ctx).Info("Eviction plugins: pod is given notice and not evicted", "pod", klog.KObj(pod),
		"podUID", n.UID, "plugins", plugins, "scope", n.Scope, "reason", n.Reason)
}

func sameNotice(a, b debugv1alpha1.PluginNotice) bool {
	return a.UID == b.UID && a.Scope == b.Scope && a.Reason == b.Reason && a.GraceSeconds == b.GraceSeconds &&
		a.Since.Equal(b.Since) && slices.Equal(a.Plugins, b.Plugins)
}

// writeNotices writes the notice files in a goroutine, unless they are up to date or a write is under way. No decision
// waits for the disk.
func (l *loop) writeNotices() {
	f, directory := &l.files, l.options.Load().SoftNoticeDirectory
	nothing := directory == "" && len(f.old) == 0
	if l.config.NoticeFiles == nil || f.busy || (directory == f.directory && (!f.changed || nothing)) {
		return
	}
	old := slices.Clone(f.old)
	if f.directory != "" && f.directory != directory && !slices.Contains(old, f.directory) {
		old = append(old, f.directory)
	}
	old = slices.DeleteFunc(old, func(o string) bool { return o == directory })
	old = old[max(0, len(old)-maxOldDirectories):]
	notices := slices.Clone(l.notices)
	f.busy, f.changed, f.directory = true, false, directory
	l.calls.Go(func() {
		var w noticesWrite
		for _, o := range old {
			if err := l.config.NoticeFiles.Write(o, nil); err != nil {
				w.old, w.err = append(w.old, o), errors.Join(w.err, err)
			}
		}
		if directory != "" {
			w.err = errors.Join(w.err, l.config.NoticeFiles.Write(directory, notices))
		}
		select {
		case f.written <- w:
		case <-l.ctx.Done():
		}
	})
}

// noticesWritten notes the end of a write. One that failed is repeated in the next round.
func (l *loop) noticesWritten(w noticesWrite) {
	f := &l.files
	f.busy, f.failed, f.old = false, w.err != nil, w.old
	switch {
	case w.err == nil:
		f.logged = ""
	case w.err.Error() != f.logged:
		f.logged = w.err.Error()
		klog.FromContext(l.ctx).Error(w.err, "Eviction plugins: notice files could not be written", "directory", f.directory)
	}
	if f.failed && l.nextRound.IsZero() {
		l.nextRound = l.clock.now().Add(l.options.Load().Period)
	}
	l.writeNotices()
}
