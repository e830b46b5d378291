package sinksdk.benchmarks;

import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.CompletedPart;

/** A multipart upload in parts of 8 MiB, as the archiver's own. */
final class S3Upload extends OutputStream {
    private static final int PART = 8 * 1024 * 1024;

    private final S3Client s3;
    private final String bucket;
    private final String key;
    private final String uploadId;
    private final byte[] part = new byte[PART];
    private final List<CompletedPart> parts = new ArrayList<>();
    private int filled;

    S3Upload(S3Client s3, String bucket, String key) {
        this.s3 = s3;
        this.bucket = bucket;
        this.key = key;
        uploadId = s3.createMultipartUpload(request -> request.bucket(bucket).key(key)).uploadId();
    }

    @Override
    public void write(int value) {
        write(new byte[] {(byte) value}, 0, 1);
    }

    @Override
    public void write(byte[] data, int start, int length) {
        while (length > 0) {
            int count = Math.min(length, PART - filled);
            System.arraycopy(data, start, part, filled, count);
            filled += count;
            start += count;
            length -= count;
            if (filled == PART) {
                send();
            }
        }
    }

    private void send() {
        int number = parts.size() + 1;
        RequestBody body = RequestBody.fromByteBuffer(java.nio.ByteBuffer.wrap(part, 0, filled));
        String tag = s3.uploadPart(
                request -> request.bucket(bucket).key(key).uploadId(uploadId).partNumber(number), body).eTag();
        parts.add(CompletedPart.builder().partNumber(number).eTag(tag).build());
        filled = 0;
    }

    void complete() {
        if (filled > 0) {
            send();
        }
        s3.completeMultipartUpload(request -> request.bucket(bucket).key(key).uploadId(uploadId)
                .multipartUpload(found -> found.parts(parts)));
    }
}
