package pressureconfig

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
)

// Reasons of events on the node.
const (
	eventReloaded = "PressureConfigReloaded"
	eventInvalid  = "PressureConfigInvalid"
)

const (
	// pollPeriod is the time between two readings of the file without a notification: its directory may not exist yet, or
	// be on a file system without notifications.
	pollPeriod = 30 * time.Second
	// settleTime is how long to wait after a notification before the file is read, because it may be written in pieces.
	// Further notifications prolong that up to maxSettleTime.
	settleTime    = 200 * time.Millisecond
	maxSettleTime = 2 * time.Second
	// maxEventText bounds the text of an error in an event, in bytes; the log has all of it.
	maxEventText = 800
)

// Reloader applies changes of the file while the agent runs. The fields are required.
type Reloader struct {
	// Loaded is the configuration that was read at start, with the file to watch.
	Loaded Loaded
	// Apply passes a new configuration, defaulted and valid, to the parts that are configured by it. It must neither
	// block nor modify the configuration. It has to ignore plugins.directories and decisionLog, which take effect at the
	// next start.
	Apply    func(*v1alpha1.NodePressureConfiguration)
	Recorder record.EventRecorder
	NodeRef  *v1.ObjectReference
	Clock    clock.Clock

	// lastError is the text of the last reported error, so that it is reported once.
	lastError string
	// atStart is the configuration before the first reload: settings that a reload does not change are those.
	atStart *v1alpha1.NodePressureConfiguration
}

// Run watches the file until ctx ends. It may be called once.
func (r *Reloader) Run(ctx context.Context) {
	registerMetrics()
	recordSuccess(r.Loaded, r.Clock.Now())
	klog.FromContext(ctx).Info("Pressure configuration is in force", "file", r.Loaded.File, "hash", r.Loaded.Hash,
		"defaults", r.Loaded.Hash == "")
	w := newFileWatch(ctx, r.Loaded.File)
	defer w.close()
	timer := r.Clock.NewTimer(settleTime)
	defer timer.Stop()
	var changed time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.events():
			if !w.isRelevant(e) {
				continue
			}
			if now := r.Clock.Now(); changed.IsZero() {
				changed = now
			} else if now.Sub(changed) >= maxSettleTime {
				continue
			}
			timer.Reset(settleTime)
			continue
		case err := <-w.errors():
			klog.FromContext(ctx).Error(err, "Watching the pressure configuration failed, polling it", "file", r.Loaded.File,
				"period", pollPeriod)
			w.close()
		case <-timer.C():
		}
		changed = time.Time{}
		w.update(ctx)
		r.reload(ctx)
		timer.Reset(pollPeriod)
	}
}

// reload reads the file and applies it if it has changed and is valid.
func (r *Reloader) reload(ctx context.Context) {
	logger := klog.FromContext(ctx)
	loaded, err := Load(r.Loaded.File, r.Loaded.Kubelet)
	if err != nil {
		recordFailure()
		if err.Error() == r.lastError {
			return
		}
		r.lastError = err.Error()
		logger.Error(err, "Pressure configuration is invalid, the previous one stays in force", "file", r.Loaded.File,
			"hashInForce", r.Loaded.Hash)
		r.Recorder.Eventf(r.NodeRef, v1.EventTypeWarning, eventInvalid,
			"The pressure configuration is invalid, the previous one stays in force: %s", truncate(err))
		return
	}
	recovered := r.lastError != ""
	r.lastError = ""
	if loaded.Hash == r.Loaded.Hash {
		if recovered {
			recordSuccess(loaded, r.Clock.Now())
			logger.Info("Pressure configuration is valid again and unchanged", "file", r.Loaded.File, "hash", loaded.Hash)
		}
		return
	}
	if r.atStart == nil {
		r.atStart = r.Loaded.Configuration()
	}
	r.Loaded = loaded
	r.Apply(loaded.Config)
	recordSuccess(loaded, r.Clock.Now())
	r.reportReload(ctx)
}

// reportReload reports that a new configuration is in force, and which changes of it are not before the next start.
func (r *Reloader) reportReload(ctx context.Context) {
	logger, file, hash := klog.FromContext(ctx), r.Loaded.File, r.Loaded.Hash
	origin := "read from " + file
	if hash == "" {
		origin = "the defaults, because there is no file " + file
	}
	logger.Info("Pressure configuration reloaded", "file", file, "hash", hash, "defaults", hash == "")
	if fields := r.pendingFields(); len(fields) > 0 {
		origin += "; changes of " + strings.Join(fields, " and ") + " take effect at the next start"
		logger.Info("Changes of the pressure configuration take effect at the next start", "file", file, "fields", fields)
	}
	r.Recorder.Eventf(r.NodeRef, v1.EventTypeNormal, eventReloaded, "A new pressure configuration is in force: %s", origin)
}

// pendingFields returns the fields that differ from those at the start and take effect at the next one.
func (r *Reloader) pendingFields() (fields []string) {
	now := r.Loaded.Configuration()
	if !slices.Equal(now.Plugins.Directories, r.atStart.Plugins.Directories) {
		fields = append(fields, "plugins.directories")
	}
	if !equality.Semantic.DeepEqual(now.DecisionLog, r.atStart.DecisionLog) {
		fields = append(fields, "decisionLog")
	}
	return fields
}

func truncate(err error) string {
	text := err.Error()
	if len(text) <= maxEventText {
		return text
	}
	return strings.ToValidUTF8(text[:maxEventText], "") + " … (the log has the rest)"
}
