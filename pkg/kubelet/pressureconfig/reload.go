package pressureconfig

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
)

// Reasons of events on the node.
const (
	eventReloaded = "PressureConfigReloaded"
	eventInvalid  = "PressureConfigInvalid"
)

const (
	// pollPeriod is how often the file is read when nothing says that it has changed: its directory may not exist yet, or
	// lie on a file system that reports nothing.
	pollPeriod = 30 * time.Second
	// settle is for how long the file should be left alone until it is read: it may be written in pieces. A directory in
	// which something happens all the time puts that off for maxSettle.
	settle    = 200 * time.Millisecond
	maxSettle = 2 * time.Second
	// maxFault bounds what an event says of faults, in bytes; the log has all of it.
	maxFault = 800
)

// Reloader keeps the options of the eviction manager as the file says. The fields are required.
type Reloader struct {
	// Loaded is what was read at start, from the file that is followed.
	Loaded Loaded
	// Apply hands over options. It must not block.
	Apply    func(eviction.Options)
	Recorder record.EventRecorder
	NodeRef  *v1.ObjectReference
	Clock    clock.Clock

	// failed is the text of the error that was reported last, so that it is reported once.
	failed string
}

// Run follows the file until ctx ends. It is called once.
func (r *Reloader) Run(ctx context.Context) {
	registerMetrics()
	measureSuccess(r.Loaded, r.Clock.Now())
	klog.FromContext(ctx).Info("Pressure configuration: in force", "file", r.Loaded.File, "hash", r.Loaded.Hash,
		"defaults", r.Loaded.Hash == "")
	w := newWatch(ctx, r.Loaded.File)
	defer w.close()
	timer := r.Clock.NewTimer(settle)
	defer timer.Stop()
	var changed time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.events():
			if !w.concerns(e) {
				continue
			}
			if now := r.Clock.Now(); changed.IsZero() {
				changed = now
			} else if now.Sub(changed) >= maxSettle {
				continue
			}
			timer.Reset(settle)
			continue
		case err := <-w.errors():
			klog.FromContext(ctx).Error(err, "Pressure configuration: watching the file failed, it is read from time to time",
				"file", r.Loaded.File)
			w.close()
		case <-timer.C():
		}
		changed = time.Time{}
		w.follow(ctx)
		r.reload(ctx)
		timer.Reset(pollPeriod)
	}
}

// reload reads the file and applies it if it has changed and is valid.
func (r *Reloader) reload(ctx context.Context) {
	logger := klog.FromContext(ctx)
	loaded, err := Load(r.Loaded.File)
	if err != nil {
		measureFailure()
		if err.Error() == r.failed {
			return
		}
		r.failed = err.Error()
		logger.Error(err, "Pressure configuration: refused, the one before stays in force", "file", r.Loaded.File,
			"hashInForce", r.Loaded.Hash)
		r.Recorder.Eventf(r.NodeRef, v1.EventTypeWarning, eventInvalid,
			"The pressure configuration is refused, the one before stays in force: %s", shortened(err))
		return
	}
	recovered := r.failed != ""
	r.failed = ""
	if loaded.Hash == r.Loaded.Hash {
		if recovered {
			measureSuccess(loaded, r.Clock.Now())
			logger.Info("Pressure configuration: valid again and as it was", "file", r.Loaded.File, "hash", loaded.Hash)
		}
		return
	}
	r.Loaded = loaded
	r.Apply(loaded.Options())
	measureSuccess(loaded, r.Clock.Now())
	origin := "read from " + r.Loaded.File
	if loaded.Hash == "" {
		origin = "the defaults, since there is no file " + r.Loaded.File
	}
	logger.Info("Pressure configuration: reloaded", "file", r.Loaded.File, "hash", loaded.Hash,
		"defaults", loaded.Hash == "")
	r.Recorder.Eventf(r.NodeRef, v1.EventTypeNormal, eventReloaded, "A new pressure configuration is in force: %s", origin)
}

func shortened(err error) string {
	text := err.Error()
	if len(text) <= maxFault {
		return text
	}
	return strings.ToValidUTF8(text[:maxFault], "") + " … (the log has the rest)"
}
